package discover

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
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

// unreachable returns the error of a dataset if asking for path failed with err: path may be inside
// a mount whose server is gone, such as that of a killed lsiofs.
func unreachable(dataset, path string, err error) error {
	if !errors.Is(err, syscall.ENOTCONN) {
		return fmt.Errorf("dataset %s: %w", dataset, err)
	}
	for point := filepath.Dir(path); point != path; point = filepath.Dir(point) {
		if _, above := os.Stat(point); !errors.Is(above, syscall.ENOTCONN) {
			break
		}
		path = point
	}
	return fmt.Errorf("dataset %s: the server of the mount at %s is gone: mount it again, or remove it with lsiofs umount %s", dataset, path, path)
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
		return Target{}, unreachable(dataset, abs, err)
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
		return Target{}, unreachable(dataset, root, err)
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

// clutter are names that operating systems and archivers leave in directories. They are never
// shards.
var clutter = map[string]bool{"lost+found": true, "__MACOSX": true, "Thumbs.db": true, "desktop.ini": true, ".DS_Store": true}

// Reasons why a name is left out.
const (
	beginsWithLine = "its name begins with _"
	isClutter      = "operating systems and archivers create it"
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
		return excluded{}, fmt.Errorf("--exclude %q is malformed: check its brackets and braces", text)
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

// mountType is the type of lsiofs's own mounts in /proc/self/mountinfo.
const mountType = "fuse.lsiofs"

// refuseMount refuses as a dataset an lsiofs mount, and a directory that contains one: a mount's
// worker files and each of its epochs have the same records. One folder of a mount has each record
// once, and so have the files of one folder.
func refuseMount(t *Target, format string) error {
	folders := t.pattern != nil && strings.Contains(t.pattern.text, "/") // it may match several
	if t.remote || !t.Whole() && !folders {
		return nil
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	above, inside, below := "", "", ""
	for line := range strings.SplitSeq(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at, ours := unescaped(fields[4]), strings.Contains(line, " - "+mountType+" ")
		if t.root == at || strings.HasPrefix(t.root, strings.TrimSuffix(at, "/")+"/") {
			if len(at) >= len(above) { // a later one covers an earlier one
				above, inside = at, ""
				if ours { // fields[3] is the part of the mount that is visible here: bind mounts show a folder
					inside = filepath.Join(fields[3], strings.TrimPrefix(t.root, at))
				}
			}
			continue
		}
		path, within := strings.CutPrefix(at, strings.TrimSuffix(t.root, "/")+"/")
		if ours && within && !folders && !strings.Contains("/"+path, "/.") && !t.LeavesOutWithin(path, format) {
			below = path
		}
	}
	switch {
	case inside == "/":
		return fmt.Errorf("dataset %s is a mount of lsiofs, in which worker files and epochs repeat the same records: name one directory of it (%s), one pattern of files ('%s'), or the dataset that was mounted",
			t, filepath.Join(t.root, "epoch-0"), filepath.Join(t.root, "worker-*"))
	case below != "":
		return fmt.Errorf("dataset %s holds a mount of lsiofs, whose files repeat the same records: leave it out with --exclude %s, or mount elsewhere", t, below)
	}
	return nil
}

// unescaped decodes a path of /proc/self/mountinfo.
func unescaped(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
