package listing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Config says what is looked for, and where.
type Config struct {
	Under storage.Storage
	Spec  spec.Zarr
	// Base is the path of the cube if the root itself is a hierarchy or an array.
	Base string
	// Match says which hierarchies are wanted (not isDir), and which directories may have some;
	// nil: all.
	Match func(path string, isDir bool) bool
}

// Cube is a hierarchy whose arrays crops are cut from. It does not change, and is safe for
// concurrent use.
type Cube struct {
	// Object is the cube as a shard of crops: its size is that of the header and all records, and
	// its version is a hash of its documents and objects.
	Object storage.Object
	Cut    *zarr.Cut
	Fields []Field // as those of Cut
	// Documents are those that it was made of.
	Documents []storage.Object

	root string // of the hierarchy, below the storage's root
}

// finder is one run of Find.
type finder struct {
	Config
	maxDirectories int
}

// Find finds the cubes, in order of their paths, at least one. What is refused is one error, which
// names every array and what is wrong with it.
func Find(ctx context.Context, c Config) ([]*Cube, error) {
	f := &finder{c, maxDirectories}
	if f.Match == nil {
		f.Match = func(string, bool) bool { return true }
	}
	hierarchies, err := f.hierarchies(ctx)
	if err != nil {
		return nil, err
	}
	if len(hierarchies) == 0 {
		return nil, errors.New("there is no Zarr hierarchy: no directory has a zarr.json, .zgroup or .zarray; name the directory of an array, or one that holds some")
	}
	var found []*Cube
	var problems, lacking []error
	for _, h := range hierarchies {
		cube, err := f.cube(ctx, h)
		lack := (*lackingError)(nil)
		switch {
		case errors.As(err, &lack):
			lacking = append(lacking, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			problems = append(problems, err)
		default:
			found = append(found, cube)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if len(found) == 0 {
		return nil, lacking[0]
	}
	slices.SortFunc(found, func(a, b *Cube) int { return strings.Compare(a.Object.Path, b.Object.Path) })
	if err := f.cut(found); err != nil {
		return nil, err
	}
	return found, f.finish(ctx, found)
}

// hierarchies are those that match.
func (f *finder) hierarchies(ctx context.Context) ([]*node, error) {
	root, err := f.nodeAt(ctx, "")
	if err != nil {
		return nil, err
	}
	if root != nil && f.Match(".", false) {
		return []*node{root}, nil
	}
	var list []*node
	err = f.walk(ctx, "", func(at string) (enter bool, err error) {
		if !f.Match(at, true) && !f.Match(at, false) {
			return false, nil
		}
		n, err := f.nodeAt(ctx, at)
		if err != nil || n == nil {
			return true, err
		}
		if !f.Match(at, false) {
			return true, nil // a pattern names something in it
		}
		list = append(list, n)
		return false, nil
	})
	return list, err
}

// walk calls visit for each directory below one, before it goes into it.
func (f *finder) walk(ctx context.Context, below string, visit func(path string) (enter bool, err error)) error {
	var failed error
	directories := 0
	err := f.Under.List(ctx, func(at string, isDir bool) bool {
		switch {
		case failed != nil || !isDir:
			return false
		case at == "." || strings.HasPrefix(below+"/", at+"/"):
			return true
		case below != "" && !strings.HasPrefix(at, below+"/"):
			return false
		}
		if directories++; directories > f.maxDirectories {
			failed = fmt.Errorf("there are more than %d directories in it: name the array with --array, or a hierarchy", f.maxDirectories)
			return false
		}
		enter, err := visit(at)
		failed = err
		return enter && err == nil
	}, func(storage.Object) error { return nil })
	return errors.Join(failed, err)
}

// maxDirectories bounds how many directories are looked into for documents.
const maxDirectories = 1 << 20

// lackingError says that a hierarchy has no such arrays: it is no cube.
type lackingError struct{ error }

// cube finds the fields of a hierarchy.
func (f *finder) cube(ctx context.Context, h *node) (*Cube, error) {
	c := &Cube{root: h.path, Documents: h.documents}
	c.Object.Path = h.path
	if h.path == "" {
		c.Object.Path = f.Base
	}
	if len(f.Spec.Fields) == 0 {
		n, err := f.only(ctx, h)
		if err != nil {
			return nil, err
		}
		return c, c.add(h, n)
	}
	var problems []error
	for _, x := range f.Spec.Fields {
		at := strings.Trim(x.Pattern, "/")
		if err := zarr.CheckPath(at); err != nil {
			return nil, fmt.Errorf("--array %s: %w", x.Pattern, err)
		}
		n, err := f.nodeAt(ctx, join(h.path, at))
		switch {
		case err != nil:
			problems = append(problems, err)
		case n == nil || !n.isArray:
			return nil, f.lacks(ctx, h, fmt.Sprintf("no array %s", at))
		default:
			problems = append(problems, c.add(h, n))
		}
	}
	return c, errors.Join(problems...)
}

// add adds the array of a node.
func (c *Cube) add(h, n *node) error {
	a, err := n.array()
	if err != nil {
		return err
	}
	c.Fields = append(c.Fields, Field{Path: n.path, Array: a})
	if n != h {
		c.Documents = append(c.Documents, n.documents...)
	}
	return nil
}

// only is the one array of a hierarchy that has all dimensions that crops have.
func (f *finder) only(ctx context.Context, h *node) (*node, error) {
	if h.isArray {
		return h, nil
	}
	nodes, err := f.arrays(ctx, h)
	if err != nil {
		return nil, err
	}
	var fit []*node
	for _, n := range nodes {
		a, err := n.array()
		if err == nil && f.fits(a) {
			fit = append(fit, n)
		} else if err != nil && len(nodes) == 1 {
			return nil, err
		}
	}
	switch len(fit) {
	case 1:
		return fit[0], nil
	case 0:
		return nil, f.lacks(ctx, h, "no array with all dimensions of --crop")
	}
	return nil, fmt.Errorf("%s has %d arrays with all dimensions of --crop: choose with --array\n%s", h.shown(), len(fit), describe(h, fit))
}

// fits says whether an array has the dimensions of --crop.
func (f *finder) fits(a *zarr.Array) bool {
	for _, v := range f.Spec.Crop {
		if v.Dim == "" {
			return len(a.Shape) == len(f.Spec.Crop)
		}
		if !slices.Contains(a.Dims, v.Dim) {
			return false
		}
	}
	return true
}

// arrays are those of a hierarchy.
func (f *finder) arrays(ctx context.Context, h *node) ([]*node, error) {
	if h.isArray {
		return []*node{h}, nil
	}
	var list []*node
	err := f.walk(ctx, h.path, func(at string) (bool, error) {
		n, err := f.nodeAt(ctx, at)
		if err != nil || n == nil || !n.isArray {
			return true, err
		}
		list = append(list, n)
		return false, nil
	})
	slices.SortFunc(list, func(a, b *node) int { return strings.Compare(a.path, b.path) })
	return list, err
}

// lacks says what a hierarchy lacks, and what it has.
func (f *finder) lacks(ctx context.Context, h *node, what string) error {
	nodes, err := f.arrays(ctx, h)
	if err != nil {
		return err
	}
	text := "; it has none at all"
	if len(nodes) > 0 {
		text = "; it has\n" + describe(h, nodes)
	}
	return &lackingError{fmt.Errorf("%s has %s%s", h.shown(), what, text)}
}

// shown is a node in messages.
func (n *node) shown() string {
	if n.path == "" {
		return "the hierarchy"
	}
	return n.path
}

// maxDescribed is how many arrays an error names.
const maxDescribed = 20

// describe lists arrays for people: path, shape, dtype and brick.
func describe(h *node, nodes []*node) string {
	var b strings.Builder
	for i, n := range nodes {
		if i == maxDescribed {
			fmt.Fprintf(&b, "  and %d more", len(nodes)-i)
			break
		}
		name := strings.TrimPrefix(strings.TrimPrefix(n.path, h.path), "/")
		if name == "" {
			name = "."
		}
		a, err := n.array()
		if err != nil {
			fmt.Fprintf(&b, "  %s, which is not supported: %v\n", name, err)
			continue
		}
		fmt.Fprintf(&b, "  %s: %s %s, in chunks of %v\n", name, zarr.ShapeText(a.Shape, a.Dims), strings.Trim(a.Type.Descr, "'"), a.Brick)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cut makes the cuts of cubes, which are in their order.
func (f *finder) cut(cubes []*Cube) error {
	lists := make([]*zarr.List, len(cubes))
	if f.Spec.List != "" {
		var err error
		if lists, err = f.lists(cubes); err != nil {
			return err
		}
	}
	var problems []error
	total := uint64(0)
	for i, c := range cubes {
		var fields []zarr.CutField
		for k := range c.Fields {
			x := zarr.CutField{Array: c.Fields[k].Array, Path: strings.TrimPrefix(strings.TrimPrefix(c.Fields[k].Path, c.root), "/")}
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
		total += c.Cut.Total()
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if total == 0 {
		return errors.New("there is no crop: the regions are shorter than crops are")
	}
	return nil
}

// finish lists the objects of all cubes.
func (f *finder) finish(ctx context.Context, cubes []*Cube) error {
	var fields []*Field
	for _, c := range cubes {
		for k := range c.Fields {
			fields = append(fields, &c.Fields[k])
		}
	}
	lists, err := f.listObjects(ctx, fields)
	if err != nil {
		return err
	}
	for _, c := range cubes {
		v := newVersions(c.Cut.Kind())
		for _, d := range c.Documents {
			v.object(d)
		}
		for range c.Fields {
			v.objects(lists[0])
			lists = lists[1:]
		}
		row := c.Cut.Row().Bytes
		if n := c.Cut.Total(); row > 0 && n > uint64((1<<60)/row) {
			return fmt.Errorf("%s: %d crops of %d bytes are more than 2⁶⁰ bytes: use a longer --stride, and --jitter to see all places", c.Object.Path, n, row)
		}
		c.Object.SizeBytes = int64(len(c.Cut.Header())) + int64(c.Cut.Total())*row
		c.Object.Version = v.version()
	}
	return f.unchanged(ctx, cubes)
}

// unchanged fails where a document is not any more what was read.
func (f *finder) unchanged(ctx context.Context, cubes []*Cube) error {
	for _, c := range cubes {
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
	}
	return nil
}
