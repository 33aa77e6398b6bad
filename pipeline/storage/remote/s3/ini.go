package s3

import (
	"fmt"
	"strings"
)

// section is the settings in one section of a profile file, by key in lower case.
type section map[string]string

// parseINI parses a profile file like Amazon's command line: a line that is indented deeper than
// the previous key continues that key's value, and section headers may be indented. A later section
// of the same name adds to the earlier one.
func parseINI(text string) (map[string]section, error) {
	all := map[string]section{}
	var at section
	key, deep := "", 0
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		value := strings.TrimSpace(line)
		if value == "" || value[0] == '#' || value[0] == ';' {
			continue
		}
		indent := strings.Index(line, value)
		if at != nil && key != "" && indent > deep {
			at[key] += "\n" + value
			continue
		}
		deep = indent
		if value[0] == '[' {
			end := strings.IndexByte(value, ']')
			if end < 0 {
				return nil, fmt.Errorf("line %d begins a section, and has no ]", i+1)
			}
			name := sectionName(value[1:end])
			if all[name] == nil {
				all[name] = section{}
			}
			at, key = all[name], ""
			continue
		}
		name, rest, found := cutKey(value)
		if !found || at == nil { // the line may be a secret, and is not printed
			return nil, fmt.Errorf("line %d of it is neither [SECTION] nor KEY = VALUE of one", i+1)
		}
		key = name
		at[key] = rest
	}
	return all, nil
}

// sectionName returns a name without the quotes that its second word may have, and with one blank
// between the words.
func sectionName(text string) string {
	kind, name, two := strings.Cut(strings.TrimSpace(text), " ")
	if !two {
		return kind
	}
	return kind + " " + strings.Trim(strings.TrimSpace(name), `"'`)
}

func cutKey(line string) (key, value string, found bool) {
	at := strings.IndexAny(line, "=:")
	if at <= 0 {
		return "", "", false
	}
	return strings.ToLower(strings.TrimSpace(line[:at])), strings.TrimSpace(line[at+1:]), true
}

// word returns a value that contains no blanks, without a comment after it and quotes around it.
func (s section) word(key string) string {
	value := s[key]
	for _, comment := range []string{" #", " ;", "\t#", "\t;"} {
		value, _, _ = strings.Cut(value, comment)
	}
	return strings.Trim(strings.TrimSpace(value), `"`)
}

// nested returns the settings in a value that consists of settings, one per line:
//
//	s3 =
//	  endpoint_url = http://HOST:PORT
func (s section) nested(key string) section {
	in := section{}
	for line := range strings.Lines(s[key]) {
		if name, value, found := cutKey(strings.TrimSpace(line)); found {
			in[name] = value
		}
	}
	return in
}
