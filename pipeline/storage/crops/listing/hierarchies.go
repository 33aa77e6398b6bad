package listing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

const (
	// maxDirectories bounds how many directories are searched for documents.
	maxDirectories = 1 << 20
	// directoryBytes is about what a directory with its path takes during the search. At least
	// leastDirectories are allowed.
	directoryBytes   = 256
	leastDirectories = 1 << 12
	// maxLevels bounds the nesting of directories: each level is a listing.
	maxLevels = 64
)

// hierarchies returns the hierarchies that match.
func (f *finder) hierarchies(ctx context.Context) ([]*node, error) {
	root, err := f.hierarchyAt(ctx, "")
	if err != nil {
		return nil, err
	}
	if root != nil && f.Match(".", false) {
		return []*node{root}, root.problem
	}
	var list []*node
	var none []string
	err = f.explore(ctx, []string{""}, func(at string, isDir bool) bool { return isDir && f.Match(at, true) || f.Match(at, false) }, f.hierarchyAt, func(at string, n *node) (enter bool, err error) {
		switch {
		case !f.Match(at, false): // a pattern may name something in it
			return true, nil
		case n == nil:
			none = append(none, at)
			return true, nil
		}
		list = append(list, n)
		return false, errors.Join(n.problem, f.hold(n))
	})
	if errors.Is(err, remote.ErrNoListing) {
		return nil, fmt.Errorf("what is there can't be listed, so the dataset has to be an array or a group, and it has no zarr.json, .zgroup or .zarray: %w", err)
	}
	slices.SortFunc(list, func(a, b *node) int { return strings.Compare(a.path, b.path) })
	if err == nil {
		f.nothingIn(none, list)
	}
	return list, err
}

// within reports whether a directory above a path is in some.
func within(some map[string]bool, at string) bool {
	for at != "" {
		if at = parent(at); some[at] {
			return true
		}
	}
	return false
}

// hierarchyAt is nodeAt, but also finds a group without a document: one that has all requested
// arrays below it.
func (f *finder) hierarchyAt(ctx context.Context, at string) (*node, error) {
	n, err := f.nodeAt(ctx, at)
	if n != nil || err != nil || len(f.Spec.Fields) == 0 {
		return n, err
	}
	for _, x := range f.Spec.Fields {
		if n, err = f.nodeAt(ctx, join(at, pathOf(x))); err != nil || n == nil || !n.isArray {
			return nil, err
		}
	}
	return &node{path: at}, nil
}

// explore searches the wanted directories below those of from, level by level. Wanted files are
// only listed, which finds broken links. visit is called with what look returns for each directory,
// in no particular order and not concurrently, and returns whether to search below it.
func (f *finder) explore(ctx context.Context, from []string, wanted func(path string, isDir bool) bool, look func(ctx context.Context, at string) (*node, error), visit func(at string, n *node) (enter bool, err error)) error {
	seen := 0
	for range maxLevels {
		level, err := f.below(ctx, from, wanted)
		if err != nil {
			return err
		}
		if seen += len(level); seen > f.maxDirectories {
			return f.tooMany()
		}
		var mu sync.Mutex
		from = nil
		err = each(ctx, level, func(ctx context.Context, at string) error {
			n, err := look(ctx, at)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			enter, err := visit(at, n)
			if enter {
				from = append(from, at)
			}
			return err
		})
		if err != nil || len(from) == 0 {
			return err
		}
	}
	return fmt.Errorf("directories are nested more than %d deep: name the hierarchy itself", maxLevels)
}

// directories matches all directories.
func directories(_ string, isDir bool) bool { return isDir }

func (f *finder) tooMany() error {
	if f.MemoryBytes > 0 && f.maxDirectories < maxDirectories {
		return fmt.Errorf("there are more than %d directories in it, and half of --memory has no room for the names of more: raise --memory, or name the array with --array, or a hierarchy", f.maxDirectories)
	}
	return fmt.Errorf("there are more than %d directories in it: name the array with --array, or a hierarchy", f.maxDirectories)
}

// below returns the directories directly below those of from, sorted; with an error, those found
// until then.
func (f *finder) below(ctx context.Context, from []string, wanted func(path string, isDir bool) bool) ([]string, error) {
	in, above, found := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range from {
		in[p] = true
		for p != "" {
			p = parent(p)
			above[p] = true
		}
	}
	var failed error
	err := f.Under.List(ctx, func(at string, isDir bool) bool {
		switch {
		case failed != nil:
			return !isDir // the visit of a file ends the listing
		case !isDir:
			return in[parent(at)] && wanted(at, false)
		case at == ".":
			return true
		}
		if in[parent(at)] && wanted(at, true) {
			if found[at] = true; len(found) > f.maxDirectories {
				failed = f.tooMany()
			}
		}
		return in[at] || above[at]
	}, func(o storage.Object) error {
		f.beside(o.Path)
		return failed
	})
	return slices.Sorted(maps.Keys(found)), cmp.Or(failed, err)
}

// contents describes the arrays of a hierarchy: how many there are, and those that may be meant.
type contents struct {
	of      *node
	arrays  int
	fits    int   // arrays that have all dimensions of --crop
	one     *node // one of them
	problem error // of an array that can't be read
	all     described
	fitting described
}

// take adds an array.
func (c *contents) take(f *finder, n *node) {
	a, err := n.array()
	c.arrays++
	line := describe(relative(c.of.path, n.path), a, err)
	c.all.add(n.path, line)
	switch {
	case err != nil:
		c.problem = err
	case f.fits(a):
		c.fits++
		c.one, n.parsed = n, a
		c.fitting.add(n.path, line)
	}
}

// fits reports whether an array has the dimensions that crops have.
func (f *finder) fits(a *zarr.Array) bool {
	for _, v := range f.Spec.Crop {
		if v.Dim == "" {
			return len(a.Shape) == len(f.Spec.Crop)
		}
		if !slices.Contains(a.Dims, v.Dim) {
			return false
		}
	}
	if len(f.Spec.Crop) > 0 {
		return true
	}
	for _, s := range f.Spec.Select {
		if a.Dimension(s.Dim) < 0 {
			return false
		}
	}
	return true
}

// sizing returns the flag that determines the dimensions of crops: without --crop they are all that
// --select leaves.
func (f *finder) sizing() string {
	if len(f.Spec.Crop) > 0 {
		return "--crop"
	}
	return "--select"
}

// contents returns the arrays of hierarchies, which are sorted by path.
func (f *finder) contents(ctx context.Context, hierarchies []*node) ([]*contents, error) {
	var list []*contents
	var from []string
	byPath := map[string]*contents{}
	for _, h := range hierarchies {
		c := &contents{of: h}
		list = append(list, c)
		if h.isArray {
			c.take(f, h)
			continue
		}
		from = append(from, h.path)
		byPath[h.path] = c
	}
	if len(from) == 0 {
		return list, nil
	}
	err := f.explore(ctx, from, directories, f.nodeAt, func(at string, n *node) (bool, error) {
		if n == nil || !n.isArray {
			return true, nil
		}
		p := parent(at)
		for byPath[p] == nil {
			p = parent(p)
		}
		byPath[p].take(f, n)
		return false, nil
	})
	if errors.Is(err, remote.ErrNoListing) {
		return list, f.consolidated(ctx, byPath)
	}
	return list, err
}

// maxDescribed is how many arrays an error names, and maxLine the longest description of one.
const (
	maxDescribed = 20
	maxLine      = 300
)

// described holds the descriptions of the first arrays by path.
type described struct {
	paths, lines []string
	count        int
}

func (d *described) add(path, line string) {
	d.count++
	i := sort.SearchStrings(d.paths, path)
	if i == maxDescribed {
		return
	}
	d.paths, d.lines = slices.Insert(d.paths, i, path), slices.Insert(d.lines, i, line)
	n := min(len(d.paths), maxDescribed)
	d.paths, d.lines = d.paths[:n], d.lines[:n]
}

func (d *described) String() string {
	text := strings.Join(d.lines, "\n")
	if more := d.count - len(d.lines); more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return text
}

// describe describes an array for people: path, shape, dtype and chunk.
func describe(name string, a *zarr.Array, err error) string {
	if name == "" {
		name = "."
	}
	line := fmt.Sprintf("  %s, which is not supported: %v", name, err)
	if err == nil {
		line = fmt.Sprintf("  %s: %s %s, in chunks of %v", name, zarr.ShapeText(a.Shape, a.Dims), strings.Trim(a.Type.Descr, "'"), a.Chunk)
	}
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "…"
	}
	return line
}

// shown returns the name of a node for messages.
func (n *node) shown() string {
	if n.path == "" {
		return "the hierarchy"
	}
	return n.path
}

func parent(at string) string {
	i := strings.LastIndexByte(at, '/')
	if i < 0 {
		return ""
	}
	return at[:i]
}
