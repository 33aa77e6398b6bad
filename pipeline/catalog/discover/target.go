package discover

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// Target is the parsed DATASET argument: a directory, a file, or the files below a directory that a
// pattern names.
type Target struct {
	root string // absolute
	// One of these: file is a single file below root; pattern selects files; if neither is set, the
	// target is the whole directory.
	file    string
	pattern *pattern
	// remote: root is a URL in a remote service. If the listing consists only of files that the
	// user has named, names is how they were named; else it is "".
	remote bool
	names  string
	// excluded is left out of the listing (--exclude).
	excluded []excluded
}

// Choice selects files in a remote service: one of its fields is set, or none for everything.
type Choice struct {
	File    string // relative to the root
	Pattern string // with the syntax of those for files
	Names   string // the service lists only files that the user has named, in this notation
}

// At returns a target below a root in a remote service, which is its canonical URL.
func At(root string, c Choice) (Target, error) {
	t := Target{root: root, file: c.File, names: c.Names, remote: true}
	if c.Pattern == "" {
		return t, nil
	}
	var err error
	if t.pattern, err = parsePattern(c.Pattern); err != nil {
		return Target{}, fmt.Errorf("dataset %s/%s: %w", root, c.Pattern, err)
	}
	return t, nil
}

// Remote reports whether the target is in a remote service, and not in a file system.
func (t *Target) Remote() bool { return t.remote }

// IsRemote reports whether a dataset's name refers to a remote service, such as s3://bucket. If a
// file of that exact name exists, it is a path.
func IsRemote(dataset string) bool {
	if !strings.Contains(dataset, "://") || !target.IsRemote(dataset) {
		return false
	}
	_, err := os.Lstat(dataset)
	return err != nil
}

// ParseTarget uses the file system to distinguish a directory, a file and a pattern. A file or
// directory of that exact name takes precedence over a pattern.
func ParseTarget(dataset string) (Target, error) {
	abs, err := filepath.Abs(dataset)
	if err != nil {
		return Target{}, fmt.Errorf("dataset %s: %w", dataset, err)
	}
	info, err := os.Stat(abs)
	switch {
	case err == nil && info.IsDir():
		return rooted(abs, Target{})
	case err == nil && info.Mode().IsRegular():
		return rooted(filepath.Dir(abs), Target{file: filepath.Base(abs)})
	case err == nil:
		return Target{}, fmt.Errorf("dataset %s is neither a directory nor a regular file: name a directory, a file or a quoted pattern", dataset)
	case !hasMeta(abs):
		if errors.Is(err, iofs.ErrNotExist) {
			return Target{}, fmt.Errorf("dataset %s: %w: name a directory, a file or a quoted pattern", dataset, iofs.ErrNotExist)
		}
		return Target{}, fmt.Errorf("dataset %s: %w", dataset, err)
	}
	root, rest := splitPattern(abs)
	p, err := parsePattern(rest)
	if err != nil {
		return Target{}, fmt.Errorf("dataset %s: %w", dataset, err)
	}
	info, err = os.Stat(root)
	switch {
	case err == nil && !info.IsDir():
		return Target{}, fmt.Errorf("dataset %s: %s is not a directory: check the path", dataset, root)
	case errors.Is(err, iofs.ErrNotExist):
		return Target{}, fmt.Errorf("dataset %s: directory %s: %w: check the path", dataset, root, iofs.ErrNotExist)
	case err != nil:
		return Target{}, fmt.Errorf("dataset %s: %w", dataset, err)
	}
	return rooted(root, Target{pattern: p})
}

// Root returns the directory that contains the target, absolute and without symbolic links, or its
// URL.
func (t *Target) Root() string { return t.root }

// Whole reports whether the target is all of its root.
func (t *Target) Whole() bool { return t.file == "" && t.pattern == nil && t.names == "" }

// rooted resolves links in the root, so that a dataset has one name and one index.
func rooted(root string, t Target) (Target, error) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return Target{}, fmt.Errorf("dataset directory %s: %w", root, err)
	}
	t.root = real
	return t, nil
}

func hasMeta(s string) bool { return strings.ContainsAny(s, `*?[{\`) }

// splitPattern splits an absolute pattern after its longest leading directory without wildcards.
func splitPattern(abs string) (root, rest string) {
	parts := strings.Split(abs, "/")
	i := 1
	for i < len(parts) && !hasMeta(parts[i]) {
		i++
	}
	root = strings.Join(parts[:i], "/")
	if root == "" {
		root = "/"
	}
	return root, strings.Join(parts[i:], "/")
}

// Text identifies the wanted part of the root; targets of one root are equal if their texts are.
func (t *Target) Text() string {
	text := t.text()
	for _, e := range t.excluded {
		text += fmt.Sprintf(" without %q", e.text)
	}
	return text
}

func (t *Target) text() string {
	switch {
	case t.file != "":
		return "file " + t.file
	case t.pattern != nil:
		return "pattern " + t.pattern.text
	case t.names != "":
		return "names " + t.names
	}
	return "directory"
}

// String returns the target for messages.
func (t *Target) String() string {
	switch {
	case t.remote && t.file != "":
		return t.root + "/" + t.file
	case t.file != "":
		return filepath.Join(t.root, t.file)
	case t.names != "":
		return t.root + "/" + t.names
	case t.pattern != nil:
		return strings.TrimSuffix(t.root, "/") + "/" + t.pattern.text
	}
	return t.root
}
