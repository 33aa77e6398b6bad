package s3

import (
	"fmt"
	"strings"
)

// section is the keys of a section of a file of profiles, in lower case.
type section map[string]string

// parseINI reads a file of profiles as Amazon's command line does: a line that is indented deeper than
// the key before it goes on with that key's value, and indented sections are sections. A later section
// of the same name adds to the one before.
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
		if !found || at == nil { // the line may be a secret, and is not told
			return nil, fmt.Errorf("line %d of it is neither [SECTION] nor KEY = VALUE of one", i+1)
		}
		key = name
		at[key] = rest
	}
	return all, nil
}

// sectionName is a name without the quotes that its second word may have, and with one blank between
// the words.
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

// word is a value that has no blanks in it, without a comment behind it and quotes around it.
func (s section) word(key string) string {
	value := s[key]
	for _, comment := range []string{" #", " ;", "\t#", "\t;"} {
		value, _, _ = strings.Cut(value, comment)
	}
	return strings.Trim(strings.TrimSpace(value), `"`)
}

// nested is a value that is keys itself, one a line:
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
