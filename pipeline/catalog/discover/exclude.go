package discover

import (
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
)

// clutter are names that operating systems and archivers leave in directories. They are never
// shards.
var clutter = map[string]bool{"lost+found": true, "__MACOSX": true, "Thumbs.db": true, "desktop.ini": true, ".DS_Store": true}

// Reasons why a name is left out.
const (
	beginsWithLine = "its name begins with _"
	isClutter      = "systems and archivers leave it behind"
)

// excluded is one --exclude.
type excluded struct {
	text string
	// anyDepth: it has no slash, and matches the last component of a path.
	anyDepth bool
	pattern  string
}

// parseExclude parses a pattern of --exclude, which is relative to the dataset.
func parseExclude(text string) (excluded, error) {
	p := strings.TrimSuffix(strings.TrimPrefix(text, "./"), "/")
	switch {
	case p == "":
		return excluded{}, fmt.Errorf("--exclude %q is empty: name files, as in --exclude 'val*'", text)
	case strings.HasPrefix(p, "/"):
		return excluded{}, fmt.Errorf("--exclude %q begins with /: patterns are relative to the dataset", text)
	}
	literals, ranges, err := splitRanges(p)
	if err != nil {
		return excluded{}, fmt.Errorf("--exclude %q: %w", text, err)
	}
	if len(ranges) > 0 {
		p = literals[0]
		for i, r := range ranges {
			if r.count() > maxExcludeRange {
				return excluded{}, fmt.Errorf("--exclude %q has a range of more than %d numbers: use * there", text, maxExcludeRange)
			}
			numbers := make([]string, r.count())
			for n := range numbers {
				numbers[n] = r.number(uint64(n))
			}
			p += "{" + strings.Join(numbers, ",") + "}" + literals[i+1]
		}
	}
	if !doublestar.ValidatePattern(p) {
		return excluded{}, fmt.Errorf("--exclude %q is not well formed: check its brackets and braces", text)
	}
	return excluded{text: text, anyDepth: !strings.Contains(p, "/"), pattern: p}, nil
}

const maxExcludeRange = 4096

// matches reports whether a path is left out.
func (e *excluded) matches(path string) bool {
	if e.anyDepth {
		path = path[strings.LastIndexByte(path, '/')+1:]
	}
	return doublestar.MatchUnvalidated(e.pattern, path)
}

// Exclude makes the target leave out what the patterns match, relative to its root.
func (t *Target) Exclude(patterns []string) error {
	t.excluded = nil
	for _, text := range patterns {
		e, err := parseExclude(text)
		if err != nil {
			return fmt.Errorf("dataset %s: %w", t, err)
		}
		t.excluded = append(t.excluded, e)
	}
	return nil
}

// ExcludeError returns why a pattern of --exclude is invalid, or nil.
func ExcludeError(pattern string) error {
	_, err := parseExclude(pattern)
	return err
}

// LeavesOutFile returns why a file in a directory of format files is left out, "" if it is not. It
// may be called concurrently.
func (t *Target) LeavesOutFile(dir string, name []byte) string {
	if clutter[string(name)] {
		return isClutter
	}
	if len(t.excluded) == 0 {
		return ""
	}
	path := string(name)
	if dir != "." {
		path = dir + "/" + path
	}
	return t.LeavesOut(path, "files")
}

// LeavesOutWithin reports whether a file is left out because of its name, or that of one of its
// parent directories.
func (t *Target) LeavesOutWithin(path, format string) bool {
	for at := 0; at < len(path); at++ {
		if path[at] == '/' && t.LeavesOut(path[:at], format) != "" {
			return true
		}
	}
	return t.LeavesOut(path, format) != ""
}

// LeavesOut returns why a name of the target is left out regardless of its content; "" if it is
// not. A pattern or a single file was named explicitly, so only --exclude leaves anything out
// there. Storages leave out names that begin with a dot.
func (t *Target) LeavesOut(path, format string) string {
	if path == "." {
		return ""
	}
	base := path[strings.LastIndexByte(path, '/')+1:]
	if t.Whole() || format == "files" {
		switch {
		case clutter[base]:
			return isClutter
		case base[0] == '_' && !formats.OfDirectories(format):
			return beginsWithLine
		}
	}
	if e := t.excludedBy(path); e != nil {
		return "--exclude " + e.text
	}
	return ""
}

// excludedBy returns the first --exclude that matches a path, or nil.
func (t *Target) excludedBy(path string) *excluded {
	for i := range t.excluded {
		if t.excluded[i].matches(path) {
			return &t.excluded[i]
		}
	}
	return nil
}
