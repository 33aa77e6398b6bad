package listing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Config describes what to look for, and where.
type Config struct {
	Under storage.Storage
	Spec  spec.Zarr
	// Base is the path of the cube if the root itself is a hierarchy or an array.
	Base string
	// Match reports which hierarchies are wanted (not isDir), and which directories may hold some;
	// nil: all. It is not called concurrently.
	Match func(path string, isDir bool) bool
	// LeftOut is called for files and directories among the hierarchies that no crops are cut from.
	// It is not called concurrently, and may be nil.
	LeftOut func(Unused)
	// MemoryBytes bounds the memory of documents, tables of objects and lists of crops; 0: only the
	// fixed limits of each apply.
	MemoryBytes int64
}

// Grid is a hierarchy with arrays that crops are cut from. It is immutable, and safe for concurrent
// use.
type Grid struct {
	// Object is the cube as a shard of crops: its size is that of the header and all records, and
	// its version is a hash of its documents and objects.
	Object storage.Object
	Cut    *zarr.Cut
	Fields []Field // in the order of Cut's fields
	// Documents are the documents that it was read from.
	Documents []storage.Object

	root string // the hierarchy's path, below the storage's root
}

// finder is one run of Find.
type finder struct {
	Config
	maxDirectories int
	held           atomic.Int64 // bytes of documents kept, and of objects
	stores         []string     // files with the name of a hierarchy or of a zip file
	files          []string     // other files, at most storage.MaxOmitted
}

// left returns how much memory remains for objects.
func (f *finder) left() int64 {
	left := f.MemoryBytes - f.held.Load()
	if held := f.Under.Caps().HeldBytes; held != nil {
		left -= held()
	}
	return max(left, 0)
}

func newFinder(c Config) *finder {
	if c.Match == nil {
		c.Match = func(string, bool) bool { return true }
	}
	if c.LeftOut == nil {
		c.LeftOut = func(Unused) {}
	}
	f := &finder{Config: c, maxDirectories: maxDirectories}
	if c.MemoryBytes > 0 {
		f.maxDirectories = int(min(max(c.MemoryBytes/directoryBytes, leastDirectories), maxDirectories))
	}
	return f
}

// Find returns the cubes, at least one, sorted by path. All refused arrays are reported in one
// error, which says what is wrong with each.
func Find(ctx context.Context, c Config) ([]*Grid, error) {
	f := newFinder(c)
	for _, x := range f.Spec.Fields {
		if at := pathOf(x); at != "" {
			if err := zarr.CheckPath(at); err != nil {
				return nil, fmt.Errorf("--array %s: %w", x.Pattern, err)
			}
		}
	}
	if len(f.Spec.Crop)+len(f.Spec.Select) == 0 {
		return nil, f.lacksCrop(ctx)
	}
	hierarchies, err := f.hierarchies(ctx)
	if err != nil {
		return nil, err
	}
	if len(hierarchies) == 0 {
		return nil, f.noHierarchy()
	}
	found, err := f.cubes(ctx, hierarchies)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *Grid) int { return strings.Compare(a.Object.Path, b.Object.Path) })
	if err := f.cut(found); err != nil {
		return nil, err
	}
	if err := f.finish(ctx, found); err != nil {
		return nil, err
	}
	return found, nil
}

// pathOf returns the path of a requested array, below its hierarchy.
func pathOf(x spec.Array) string {
	if at := strings.Trim(x.Pattern, "/"); at != "." {
		return at
	}
	return ""
}

// lackingError means that a hierarchy does not have the requested arrays, so it is not a cube.
type lackingError struct {
	of   *node
	what string
}

func (e *lackingError) Error() string { return e.of.shown() + " has " + e.what }

// cubes returns the hierarchies that have the arrays.
func (f *finder) cubes(ctx context.Context, hierarchies []*node) ([]*Grid, error) {
	cubes, failed := make([]*Grid, len(hierarchies)), make([]error, len(hierarchies))
	if len(f.Spec.Fields) == 0 {
		list, err := f.contents(ctx, hierarchies)
		if err != nil {
			return nil, err
		}
		for i, c := range list {
			cubes[i], failed[i] = f.only(c)
		}
	} else {
		numbers := make([]int, len(hierarchies))
		for i := range numbers {
			numbers[i] = i
		}
		err := each(ctx, numbers, func(ctx context.Context, i int) error {
			cubes[i], failed[i] = f.named(ctx, hierarchies[i])
			return ctx.Err()
		})
		if err != nil {
			return nil, err
		}
	}
	var found []*Grid
	var problems []error
	var lacking *lackingError
	for i, err := range failed {
		if lack := (*lackingError)(nil); errors.As(err, &lack) {
			if lacking == nil {
				lacking = lack
			}
		} else if err != nil {
			problems = append(problems, err)
		} else {
			found = append(found, cubes[i])
		}
	}
	if len(problems) > 0 {
		return nil, joined(problems)
	}
	if len(found) == 0 {
		return nil, f.lacks(ctx, lacking)
	}
	asked := 0
	for i, err := range failed {
		lack := (*lackingError)(nil)
		if !errors.As(err, &lack) {
			continue
		}
		why := "it has " + lack.what
		if asked++; asked <= mostExplained {
			why = f.why(ctx, lack)
		}
		f.LeftOut(Unused{Path: hierarchies[i].path, Why: why})
	}
	return found, nil
}

// mostExplained bounds the left-out hierarchies for which a missing document is looked for, which
// takes requests: a mount names no more than that one by one.
const mostExplained = 5

// why returns what a hierarchy lacks that others have.
func (f *finder) why(ctx context.Context, lack *lackingError) string {
	if missing := f.missing(ctx, lack.of); missing != nil {
		return fmt.Sprintf("it has %s: %v", lack.what, missing)
	}
	return "it has " + lack.what
}

// joined joins errors, but not too many.
func joined(problems []error) error {
	if more := len(problems) - maxDescribed; more > 0 {
		problems = append(problems[:maxDescribed:maxDescribed], fmt.Errorf("and %d more", more))
	}
	return errors.Join(problems...)
}

// lacks returns an error with what a hierarchy lacks, and what it has.
func (f *finder) lacks(ctx context.Context, lack *lackingError) error {
	if missing := f.missing(ctx, lack.of); missing != nil {
		return fmt.Errorf("%w: %w", lack, missing)
	}
	list, err := f.contents(ctx, []*node{lack.of})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w; what it has can't be listed: %w", lack, err)
	case list[0].arrays == 0:
		return fmt.Errorf("%w; it has none at all", lack)
	}
	if lack.of.isArray {
		return fmt.Errorf("%w; it is an array itself, which needs no --array: it has\n%s", lack, &list[0].all)
	}
	return fmt.Errorf("%w; it has\n%s", lack, &list[0].all)
}

func newCube(f *finder, h *node) *Grid {
	c := &Grid{root: h.path, Documents: h.documents}
	if c.Object.Path = h.path; h.path == "" {
		c.Object.Path = f.Base
	}
	return c
}

// only returns the cube of the only array that has all dimensions of crops.
func (f *finder) only(has *contents) (*Grid, error) {
	h := has.of
	switch {
	case h.isArray && has.problem != nil, has.fits == 0 && has.arrays == 1 && has.problem != nil:
		return nil, has.problem
	case has.fits == 0 && !h.isArray:
		return nil, &lackingError{h, "no array with all dimensions of " + f.sizing()}
	case has.fits > 1:
		return nil, fmt.Errorf("%s has %d arrays with all dimensions of %s: choose with --array\n%s", h.shown(), has.fits, f.sizing(), &has.fitting)
	}
	c, n := newCube(f, h), has.one
	if n == nil {
		n = h // an array by itself: its cut reports what it lacks
	}
	return c, c.add(f, h, n)
}

// named returns the cube of the arrays that were named.
func (f *finder) named(ctx context.Context, h *node) (*Grid, error) {
	c := newCube(f, h)
	var problems []error
	for _, x := range f.Spec.Fields {
		n, err := f.nodeAt(ctx, join(h.path, pathOf(x)))
		switch {
		case err != nil:
			problems = append(problems, err)
		case n == nil || !n.isArray:
			return nil, &lackingError{h, "no array " + pathOf(x)}
		default:
			problems = append(problems, c.add(f, h, n))
		}
	}
	return c, errors.Join(problems...)
}

// add adds the array of a node to the cube.
func (c *Grid) add(f *finder, h, n *node) error {
	a, err := n.array()
	if err != nil {
		return err
	}
	c.Fields = append(c.Fields, Field{Path: n.path, Array: a})
	for _, d := range n.documents {
		if !slices.ContainsFunc(c.Documents, func(o storage.Object) bool { return o.Path == d.Path }) {
			c.Documents = append(c.Documents, d)
		}
	}
	return f.hold(n)
}

// cut makes the cuts of cubes, which are sorted by path.
func (f *finder) cut(cubes []*Grid) error {
	lists := make([]*zarr.List, len(cubes))
	if f.Spec.List != "" {
		var err error
		if lists, err = f.lists(cubes); err != nil {
			return err
		}
	}
	var problems []error
	var empty []*Grid
	total := uint64(0)
	for i, c := range cubes {
		var fields []zarr.CutField
		for k := range c.Fields {
			x := zarr.CutField{Array: c.Fields[k].Array, Path: relative(c.root, c.Fields[k].Path)}
			x.Name = x.Path[strings.LastIndexByte(x.Path, '/')+1:]
			if k < len(f.Spec.Fields) {
				x.Name = spec.NameOf(f.Spec.Fields[k])
			}
			fields = append(fields, x)
		}
		var err error
		if c.Cut, err = zarr.NewCut(f.Spec, lists[i], fields); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", c.Object.Path, err))
			continue
		}
		if c.Cut.Total() == 0 {
			empty = append(empty, c)
		}
		total += c.Cut.Total()
	}
	if len(problems) > 0 {
		return joined(problems)
	}
	if total == 0 {
		c := cubes[0]
		return fmt.Errorf("%s: %w", c.Object.Path, cmp.Or(c.Cut.Short(), errNoCrop))
	}
	for _, c := range empty {
		f.LeftOut(Unused{Path: c.Object.Path, Why: cmp.Or(c.Cut.Short(), errNoCrop).Error()})
	}
	return nil
}

var errNoCrop = errors.New("there is no crop")

// finish lists the objects of all cubes.
func (f *finder) finish(ctx context.Context, cubes []*Grid) error {
	var fields []*Field
	for _, c := range cubes {
		row := c.Cut.Row().Bytes
		if n := c.Cut.Total(); row > 0 && n > uint64((1<<60)/row) {
			return fmt.Errorf("%s: %d crops of %d bytes are more than 2⁶⁰ bytes: use a longer --stride, and --jitter to see all places", c.Object.Path, n, row)
		}
		c.Object.SizeBytes = int64(len(c.Cut.Header())) + int64(c.Cut.Total())*row
		for k := range c.Fields {
			fields = append(fields, &c.Fields[k])
		}
	}
	digests, err := f.objects(ctx, fields)
	if err != nil {
		return err
	}
	for _, c := range cubes {
		v := newVersions(c.Cut.Kind())
		for _, d := range c.Documents {
			v.object(d)
		}
		for range c.Fields {
			v.objects(digests[0])
			digests = digests[1:]
		}
		c.Object.Version = v.version()
	}
	return f.unchanged(ctx, cubes)
}

// unchanged returns an error if a document has changed since it was read.
func (f *finder) unchanged(ctx context.Context, cubes []*Grid) error {
	return each(ctx, cubes, func(ctx context.Context, c *Grid) error {
		for _, d := range c.Documents {
			now, err := f.Under.Stat(ctx, d.Path)
			if errors.Is(err, fs.ErrNotExist) {
				err = storage.ErrChanged
			}
			if err == nil {
				err = storage.Compare(d, now)
			}
			if err != nil {
				return fmt.Errorf("%s changed while it was read: wait until the array is written, then run again: %w", d.Path, err)
			}
		}
		return nil
	})
}
