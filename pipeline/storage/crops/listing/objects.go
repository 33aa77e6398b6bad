package listing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// MaxObjects bounds the objects of all arrays together: their tables then take 3 GiB.
const MaxObjects = 1 << 27

// objectBytes is the most that an object takes of Config.MemoryBytes: two entries of a table. While
// they are listed, objects take more, but nothing has been decoded at that time.
const objectBytes = 48

// Field is an array of a cube, and its objects.
type Field struct {
	// Path is the array's directory below the storage's root; "" is the root.
	Path  string
	Array *zarr.Array

	counts  []int64 // of objects, along each dimension
	table   *table
	ignored int64
}

// Object returns the object with a number, in C order of Array.Objects; present reports whether it
// existed when it was listed. An absent object has only its path.
func (f *Field) Object(number int64) (o storage.Object, present bool) {
	e, present := f.table.at(number)
	o = f.named(number)
	o.SizeBytes, o.Version = e.sizeBytes, storage.Version{ModTimeNanos: e.modTimeNanos, Inode: e.inode}
	return o, present
}

// named returns the object with a number, with only its path.
func (f *Field) named(number int64) (o storage.Object) {
	var place [zarr.MaxDims]int64
	at := place[:len(f.counts)]
	zarr.Grid{Counts: f.counts}.Place(at, number)
	var buf [256]byte
	key := buf[:0]
	if f.Path != "" {
		key = append(append(key, f.Path...), '/')
	}
	o.Path = string(f.Array.Keys.Append(key, at))
	return o
}

// Has reports whether an object existed.
func (f *Field) Has(number int64) bool {
	_, present := f.table.at(number)
	return present
}

// LargestObject returns the size of the largest object.
func (f *Field) LargestObject() int64 { return f.table.largest }

// HeldBytes returns the memory of the field's table of objects. Fields of the same array share it.
func (f *Field) HeldBytes() int64 { return f.table.heldBytes() }

// Present returns how many objects exist, and Ignored how many other files and directories were
// found.
func (f *Field) Present() int64 { return f.table.present }
func (f *Field) Ignored() int64 { return f.ignored }

// listed is an array that is being listed. It is a field of one or more cubes.
type listed struct {
	*Field
	place []int64
	found records
	seen  int64 // objects by name, including those that are not files
	// misnamed is something that would be an object in another key encoding; "": none.
	misnamed string
}

// lister lists the objects of all arrays in one pass.
type lister struct {
	arrays []*listed
	byPath map[string]*listed
	above  map[string]bool // directories that contain arrays, and whether they were seen
	files  map[string]bool // files in the place of a directory
	total  int64
	most   int64 // bound of total, by memory
	failed error
}

// objects fills in the tables of all fields, and returns a digest of each.
func (f *finder) objects(ctx context.Context, fields []*Field) ([]*digest, error) {
	l := &lister{byPath: map[string]*listed{}, above: map[string]bool{}, files: map[string]bool{}, most: MaxObjects}
	if f.MemoryBytes > 0 {
		l.most = min(f.left()/objectBytes, MaxObjects)
	}
	defer func() {
		for _, x := range l.arrays {
			x.found.free()
		}
	}()
	for _, x := range fields {
		x.counts = x.Array.Objects().Counts
		if l.byPath[x.Path] != nil {
			continue
		}
		a := &listed{Field: x, place: make([]int64, len(x.counts))}
		l.byPath[x.Path] = a
		l.arrays = append(l.arrays, a)
		for p := x.Path; p != ""; p = parent(p) {
			l.above[p] = false
		}
	}
	err := f.Under.List(ctx, l.match, l.visit)
	switch {
	case l.failed != nil:
		return nil, l.failed
	case errors.Is(err, remote.ErrNoListing):
		err = f.askForObjects(ctx, l)
	case err == nil:
		err = l.complete()
	}
	if err != nil {
		return nil, err
	}
	digests := map[string]*digest{}
	for _, x := range l.arrays {
		if err := x.found.settle(); err != nil {
			return nil, fmt.Errorf("%s: an object: %w", x.Path, err)
		}
		d := digestOf(x.found.list)
		digests[x.Path] = &d
		if x.table, err = newTable(x.found.list, zarr.Grid{Counts: x.counts}.Total()); err != nil {
			return nil, err
		}
		x.found.free()
	}
	if err := f.noFiles(ctx, l); err != nil {
		return nil, err
	}
	list := make([]*digest, len(fields))
	for i, x := range fields {
		a := l.byPath[x.Path]
		x.table, x.ignored, list[i] = a.table, a.ignored, digests[x.Path]
	}
	return list, nil
}

// in returns the array that a path is in, and the path relative to it.
func (l *lister) in(at string) (*listed, string) {
	for p := at; p != ""; {
		p = parent(p)
		if x := l.byPath[p]; x != nil {
			return x, relative(p, at)
		}
	}
	return nil, ""
}

func (l *lister) match(at string, isDir bool) bool {
	if l.failed != nil {
		return !isDir // the visit of a file ends the listing
	}
	if at == "." {
		return true
	}
	if _, wanted := l.above[at]; wanted {
		if isDir {
			l.above[at] = true
			return true
		}
		l.above[at], l.files[at] = false, true // also for a directory, if it turns out to be a link back up
	}
	x, key := l.in(at)
	switch {
	case x == nil:
		return false
	case isDir && x.mayHold(x.Array.Keys, key):
		return true
	case x.Array.Keys.Parse(x.place, key, x.counts):
		if isDir { // treating it as absent would give the fill value
			l.failed = fmt.Errorf("%s is a directory, and has to be a file, which is a chunk or a shard of the array: remove it, or write the array again", at)
		}
		x.seen++
		return true
	case !isDir && x.mayHold(x.Array.Keys, key):
		l.failed = fmt.Errorf("%s is not a directory: the array has objects below that name: put the directory that has them there, or a link to it", at)
		return true
	case key != "zarr.json":
		x.ignored++
		if x.misnamed == "" && x.otherwise(key, isDir) {
			x.misnamed = at
		}
	}
	return false
}

// mayHold reports whether keys of the array may begin with a directory.
func (x *listed) mayHold(keys zarr.Keys, dir string) bool {
	if keys.Separator != '/' || len(x.counts) == 0 {
		return false
	}
	if keys.Prefixed {
		if dir == "c" {
			return true
		}
		rest, ok := strings.CutPrefix(dir, "c/")
		if !ok {
			return false
		}
		dir = rest
	}
	n := strings.Count(dir, "/") + 1
	if n >= len(x.counts) {
		return false
	}
	return zarr.Keys{Separator: '/'}.Parse(x.place[:n], dir, x.counts[:n])
}

// otherwise reports whether a path would be an object in another key encoding.
func (x *listed) otherwise(path string, isDir bool) bool {
	for _, keys := range []zarr.Keys{{Separator: '.'}, {Separator: '/'}, {Prefixed: true, Separator: '.'}, {Prefixed: true, Separator: '/'}} {
		if isDir && x.mayHold(keys, path) || !isDir && keys.Parse(x.place, path, x.counts) {
			return true
		}
	}
	return false
}

func (l *lister) visit(o storage.Object) error {
	if l.failed != nil {
		return l.failed
	}
	x, key := l.in(o.Path)
	if x == nil || !x.Array.Keys.Parse(x.place, key, x.counts) {
		return nil
	}
	l.failed = l.add(x, zarr.Grid{Counts: x.counts}.Number(x.place), o)
	return l.failed
}

// add records an object.
func (l *lister) add(x *listed, number int64, o storage.Object) error {
	if l.total++; l.total > MaxObjects {
		return fmt.Errorf("the arrays have more than %d objects: write them with sharding, or name some of the hierarchies by a pattern", int64(MaxObjects))
	}
	if l.total > l.most {
		return fmt.Errorf("the arrays have more than %d objects, and half of --memory has no room for the places of more: raise --memory, write them with sharding, or name some of the hierarchies by a pattern", l.most)
	}
	e := entry{o.SizeBytes, o.Version.ModTimeNanos, o.Version.Inode}
	if (e == entry{}) {
		return fmt.Errorf("%s is empty, and has no version: write it again, or remove it", o.Path)
	}
	return x.found.add(numbered{place{number, e}, o.Version.ChangeTimeNanos})
}

// complete returns an error if objects may be missing from the listing.
func (l *lister) complete() error {
	for _, x := range l.arrays {
		if strings.HasPrefix(x.Path, ".") || strings.Contains(x.Path, "/.") {
			return fmt.Errorf("the array %s has a name that begins with a dot, which listings pass over, so that its chunks can't be found: rename it, or name it as the dataset itself", x.shown())
		}
	}
	for at := range l.files {
		if !l.above[at] {
			return fmt.Errorf("%s is not a directory, and an array lies below that name: put the directory there that has it, or a link to it", at)
		}
	}
	for _, x := range l.arrays {
		if x.misnamed != "" && len(x.found.list) == 0 {
			return fmt.Errorf("the array %s has %s, and no objects with the names that its document gives, such as %q: correct its dimension_separator or chunk_key_encoding",
				x.shown(), x.misnamed, x.Array.Keys.Append(nil, make([]int64, len(x.counts))))
		}
	}
	return nil
}

// noFiles returns an error if something that listings skip, such as a pipe, has the name of an
// object: it would be taken for absent. Only few names are checked: the other candidates were
// removed while they were listed.
func (f *finder) noFiles(ctx context.Context, l *lister) error {
	const most = 100
	missing := func(x *listed) bool { return x != nil && x.seen > x.table.present }
	if !slices.ContainsFunc(l.arrays, missing) {
		return nil
	}
	var names []string
	err := f.Under.List(ctx, func(at string, isDir bool) bool {
		if isDir {
			return l.match(at, isDir)
		}
		x, key := l.in(at)
		if missing(x) && len(names) < most && x.Array.Keys.Parse(x.place, key, x.counts) && !x.Has(zarr.Grid{Counts: x.counts}.Number(x.place)) {
			names = append(names, at)
		}
		return false
	}, func(storage.Object) error { return nil })
	if err != nil {
		return err
	}
	var problems []error
	for _, at := range names {
		if _, err := f.Under.Stat(ctx, at); errors.Is(err, storage.ErrNoFile) {
			problems = append(problems, fmt.Errorf("%w: it has to be a file, which is a chunk or a shard of the array: remove it, or write the array again", err))
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return joined(problems)
}

func (f *Field) shown() string {
	if f.Path == "" {
		return "itself"
	}
	return f.Path
}

// Each calls visit with the number of each existing object, in ascending order, until it returns
// false.
func (f *Field) Each(visit func(number int64) bool) {
	for n, e := range f.table.dense {
		if (e != entry{}) && !visit(int64(n)) {
			return
		}
	}
	for i := range f.table.sparse {
		if !visit(f.table.sparse[i].number) {
			return
		}
	}
	runtime.KeepAlive(f.table)
}
