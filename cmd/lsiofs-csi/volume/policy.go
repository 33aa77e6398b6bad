package volume

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Policy determines what this node's administrator allows pods to name.
type Policy struct {
	// Allow are the directories that paths must be in; if empty, all except Never.
	Allow []string
	// Never are directories that no path may be, be in, or be above.
	Never []string
	// AllowURLs are services on this machine, and metadata services, that URLs may lead to. Servers
	// enforce this, because names and redirects can lead there, too.
	AllowURLs []string
	// MemoryLimitBytes is the memory that a server may take; 0: no limit.
	MemoryLimitBytes int64
}

// Never returns the directories that no pod may name: those of the system, and own.
func Never(own ...string) []string {
	all := []string{"/proc", "/sys", "/dev", "/etc", "/run", "/var/run", "/root"}
	for _, dir := range own {
		all = append(all, filepath.Clean(dir))
	}
	return all
}

// CheckPattern checks an absolute path, which may be a pattern, and returns its part before the
// first pattern.
func (p Policy) CheckPattern(pattern string) (prefix string, err error) {
	prefix = filepath.Clean(pattern)
	for strings.HasPrefix(pattern, "/") && strings.ContainsAny(prefix, `*?[{\`) {
		prefix = filepath.Dir(prefix)
	}
	return prefix, p.check(pattern, prefix)
}

// Check checks an absolute path that is not a pattern.
func (p Policy) Check(path string) error { return p.check(path, filepath.Clean(path)) }

// check checks clean; errors call it name.
func (p Policy) check(name, clean string) error {
	switch {
	case !strings.HasPrefix(name, "/"):
		return fmt.Errorf("%q must be an absolute path of the node, or a URL where a dataset is named", short(name))
	case climbs(name):
		return fmt.Errorf("%q must not have .. in it: write the path without", short(name))
	}
	if len(p.Allow) > 0 && !slices.ContainsFunc(p.Allow, func(dir string) bool { return within(clean, dir) }) {
		return fmt.Errorf("%q is in none of the directories that this node's administrator allows (--allow-path of the driver): %s", short(name), strings.Join(p.Allow, ", "))
	}
	for _, dir := range p.Never {
		if within(clean, dir) || within(dir, clean) {
			return fmt.Errorf("%q overlaps %s, which no pod may read: name a directory of data", short(name), dir)
		}
	}
	return nil
}

// climbs reports whether a path or pattern has an element "..", also as an alternative in braces.
func climbs(pattern string) bool {
	return slices.Contains(strings.FieldsFunc(pattern, func(r rune) bool { return strings.ContainsRune("/{,}", r) }), "..")
}

// within reports whether path is dir or below it. Both are clean and absolute.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
