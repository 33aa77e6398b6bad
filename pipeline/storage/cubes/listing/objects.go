package listing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// entry is an object as it was listed. The zero value is one that is absent.
type entry struct {
	sizeBytes, modTimeNanos int64
	inode                   uint64
}

// numbered is an entry with its number in the grid of objects.
type numbered struct {
	number int64
	entry
	changeTimeNanos int64
}

// table has the objects of an array. Where most of a grid is there it is one entry a place,
// else what is there, by number.
type table struct {
	dense   []entry
	numbers []int64
	entries []entry
	present int64
}

// newTable makes the table of a grid of total places. It sorts list.
func newTable(list []numbered, total int64) table {
	slices.SortFunc(list, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	t := table{present: int64(len(list))}
	if total <= 2*t.present+1024 {
		t.dense = make([]entry, total)
		for _, x := range list {
			t.dense[x.number] = x.entry
		}
		return t
	}
	t.numbers, t.entries = make([]int64, len(list)), make([]entry, len(list))
	for i, x := range list {
		t.numbers[i], t.entries[i] = x.number, x.entry
	}
	return t
}

// at is the entry of a place.
func (t *table) at(number int64) (entry, bool) {
	if t.dense != nil {
		e := t.dense[number]
		return e, e != entry{}
	}
	i, found := slices.BinarySearch(t.numbers, number)
	if !found {
		return entry{}, false
	}
	return t.entries[i], true
}

// Field is an array of a cube, and its objects.
type Field struct {
	// Path is the array's directory below the storage's root, "" for the root.
	Path  string
	Array *zarr.Array

	counts  []int64 // of objects, along each dimension
	table   table
	ignored int64
}

// Object is the object of a number, in C order of Array.Objects; present says whether it was
// there when it was listed. The object of one that was not has its path alone.
func (f *Field) Object(number int64) (o storage.Object, present bool) {
	e, present := f.table.at(number)
	var place [zarr.MaxDims]int64
	at := place[:len(f.counts)]
	zarr.Grid{Counts: f.counts}.Place(at, number)
	var buf [256]byte
	key := buf[:0]
	if f.Path != "" {
		key = append(append(key, f.Path...), '/')
	}
	o.Path = string(f.Array.Keys.Append(key, at))
	o.SizeBytes, o.Version = e.sizeBytes, storage.Version{ModTimeNanos: e.modTimeNanos, Inode: e.inode}
	return o, present
}

// Has says whether an object was there.
func (f *Field) Has(number int64) bool {
	_, present := f.table.at(number)
	return present
}

// Present is how many objects there are, and Ignored how many files were found that are none.
func (f *Field) Present() int64 { return f.table.present }
func (f *Field) Ignored() int64 { return f.ignored }

// listed is a field that is being listed.
type listed struct {
	*Field
	place []int64
	found []numbered
}

// listObjects fills in the tables of all fields, in one pass.
func (f *finder) listObjects(ctx context.Context, fields []*Field) ([][]numbered, error) {
	byPath, above := map[string]*listed{}, map[string]bool{}
	all := make([]*listed, len(fields))
	for i, x := range fields {
		x.counts = x.Array.Objects().Counts
		all[i] = byPath[x.Path]
		if all[i] != nil {
			continue // two fields of one array
		}
		all[i] = &listed{Field: x, place: make([]int64, len(x.counts))}
		byPath[x.Path] = all[i]
		for p := x.Path; p != ""; {
			p = parent(p)
			above[p] = true
		}
	}
	in := func(at string) (*listed, string) { // the array that a path lies in, and the rest
		for p := at; p != ""; {
			p = parent(p)
			if x := byPath[p]; x != nil {
				return x, strings.TrimPrefix(strings.TrimPrefix(at, p), "/")
			}
		}
		return nil, ""
	}
	err := f.Under.List(ctx, func(at string, isDir bool) bool {
		if isDir && (at == "." || above[at] || byPath[at] != nil) {
			return true
		}
		x, rest := in(at)
		return x != nil && (!isDir || strings.Count(rest, "/") < len(x.counts)+1)
	}, func(o storage.Object) error {
		x, key := in(o.Path)
		if x == nil {
			return nil
		}
		if !x.Array.Keys.Parse(x.place, key, x.counts) {
			if key != "zarr.json" {
				x.ignored++
			}
			return nil
		}
		e := entry{o.SizeBytes, o.Version.ModTimeNanos, o.Version.Inode}
		if (e == entry{}) {
			return fmt.Errorf("%s is empty, and has no version: write it again, or remove it", o.Path)
		}
		x.found = append(x.found, numbered{zarr.Grid{Counts: x.counts}.Number(x.place), e, o.Version.ChangeTimeNanos})
		return nil
	})
	if err != nil {
		return nil, err
	}
	lists := make([][]numbered, len(fields))
	for i, x := range all {
		if x.Field == fields[i] {
			x.table = newTable(x.found, zarr.Grid{Counts: x.counts}.Total())
		}
		fields[i].table, fields[i].ignored = x.table, x.ignored
		lists[i] = x.found
	}
	return lists, nil
}

func parent(at string) string {
	i := strings.LastIndexByte(at, '/')
	if i < 0 {
		return ""
	}
	return at[:i]
}

// versions collects the version of a cube: a hash of its documents and its objects.
type versions struct {
	identity, changes hash.Hash
	changed           bool
	buf               []byte
}

func newVersions(kind string) *versions {
	v := &versions{identity: sha256.New(), changes: sha256.New()}
	_, _ = v.identity.Write([]byte(kind))
	return v
}

func (v *versions) object(o storage.Object) {
	v.buf = binary.LittleEndian.AppendUint64(v.buf[:0], uint64(len(o.Path)))
	_, _ = v.identity.Write(append(v.buf, o.Path...))
	v.numbers(o.Version.ChangeTimeNanos, o.SizeBytes, o.Version.ModTimeNanos, int64(o.Version.Inode))
}

func (v *versions) objects(list []numbered) {
	v.numbers(0, int64(len(list)))
	for _, x := range list {
		v.numbers(x.changeTimeNanos, x.number, x.sizeBytes, x.modTimeNanos, int64(x.inode))
	}
}

func (v *versions) numbers(changeTimeNanos int64, list ...int64) {
	v.buf = v.buf[:0]
	for _, n := range list {
		v.buf = binary.LittleEndian.AppendUint64(v.buf, uint64(n))
	}
	_, _ = v.identity.Write(v.buf)
	v.buf = binary.LittleEndian.AppendUint64(v.buf[:0], uint64(changeTimeNanos))
	_, _ = v.changes.Write(v.buf)
	v.changed = v.changed || changeTimeNanos != 0
}

func (v *versions) version() storage.Version {
	h := v.identity.Sum(nil)
	version := storage.Version{ModTimeNanos: int64(binary.LittleEndian.Uint64(h) >> 1), Inode: binary.LittleEndian.Uint64(h[8:]) | 1}
	if v.changed {
		version.ChangeTimeNanos = int64(binary.LittleEndian.Uint64(v.changes.Sum(nil)) >> 1)
	}
	return version
}
