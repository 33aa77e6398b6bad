package listing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestRootItselfMayBeAGrid(t *testing.T) {
	dir := t.TempDir()
	writeV3(t, dir, small, func(place []int64) bool { return place[0] != 1 })
	c := findOne(t, dir, crops)
	require.Equal(t, "base.zarr", c.Object.Path)
	require.EqualValues(t, 3*2*2, c.Cut.Total())
	require.EqualValues(t, len(c.Cut.Header())+12*16, c.Object.SizeBytes)
	require.NotZero(t, c.Object.Version.Inode)
	f := &c.Fields[0]
	require.Equal(t, "", f.Path)
	require.Equal(t, []int64{0, 1, 2, 3, 8, 9, 10, 11}, present(f))
	require.EqualValues(t, 8, f.Present())
	require.Zero(t, f.Ignored())

	o, there := f.Object(5) // 1, 0, 1
	require.False(t, there)
	require.Equal(t, storage.Object{Path: "c/1/0/1"}, o)
	o, there = f.Object(11)
	require.True(t, there)
	now, err := openLocal(t, dir).Stat(t.Context(), "c/2/1/1")
	require.NoError(t, err)
	require.Equal(t, now.Path, o.Path)
	require.NoError(t, storage.Compare(o, now))
}

func TestHierarchiesBelowRootAreGridsByPath(t *testing.T) {
	dir := t.TempDir()
	writeV2(t, filepath.Join(dir, "b.zarr"), ".", "0.0.0", "2.1.1")
	write(t, filepath.Join(dir, "deep/a.zarr/zarr.json"), groupV3)
	writeV3(t, filepath.Join(dir, "deep/a.zarr/group/data"), small, nil)
	write(t, filepath.Join(dir, "c.zarr/.zgroup"), `{"zarr_format": 2}`)
	writeV2(t, filepath.Join(dir, "c.zarr/data"), "/", "0/1/0")
	write(t, filepath.Join(dir, "notes/readme.txt"), "no hierarchy")
	write(t, filepath.Join(dir, ".hidden.zarr/zarr.json"), groupV3)
	list, err := find(t, openLocal(t, dir), crops)
	require.NoError(t, err)
	var paths, arrays []string
	var objects []int64
	for _, c := range list {
		paths = append(paths, c.Object.Path)
		arrays = append(arrays, c.Fields[0].Path)
		objects = append(objects, c.Fields[0].Present())
	}
	require.Equal(t, []string{"b.zarr", "c.zarr", "deep/a.zarr"}, paths)
	require.Equal(t, []string{"b.zarr", "c.zarr/data", "deep/a.zarr/group/data"}, arrays)
	require.Equal(t, []int64{2, 1, 12}, objects)

	list, err = Find(t.Context(), Config{Under: openLocal(t, dir), Spec: crops, Match: func(path string, isDir bool) bool {
		return path == "c.zarr" && !isDir
	}})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "c.zarr", list[0].Object.Path)
}

// TestFieldsAreNamedArrays also covers groups without documents, the same array twice,
// and hierarchies next to others that lack the arrays.
func TestFieldsAreNamedArrays(t *testing.T) {
	dir := t.TempDir()
	writeV3(t, filepath.Join(dir, "sat.zarr/low/data"), small, nil)
	writeV2(t, filepath.Join(dir, "hrv.zarr/data"), ".", "0.0.0")
	z := named("/sat.zarr/low/data/", "hrv.zarr/data", "sat.zarr/low/data")
	z.Fields[1].Name, z.Fields[2].Name = "hrv", "again"
	c := findOne(t, dir, z)
	require.Equal(t, "base.zarr", c.Object.Path)
	require.Equal(t, "sat.zarr/low/data", c.Fields[0].Path)
	require.Equal(t, "hrv.zarr/data", c.Fields[1].Path)
	require.EqualValues(t, 12, c.Fields[0].Present())
	require.EqualValues(t, 1, c.Fields[1].Present())
	require.EqualValues(t, 12, c.Fields[2].Present())

	list, err := find(t, openLocal(t, dir), named("data"))
	require.NoError(t, err)
	require.Len(t, list, 2, "directories without documents, in which it lies")
	require.Equal(t, "hrv.zarr", list[0].Object.Path)
	require.Equal(t, "sat.zarr/low", list[1].Object.Path)

	write(t, filepath.Join(dir, "2018.zarr/.zgroup"), `{"zarr_format": 2}`)
	writeV2(t, filepath.Join(dir, "2018.zarr/x/only"), ".", "0.0.0")
	c = findOne(t, dir, named("x/only"))
	require.Equal(t, "2018.zarr", c.Object.Path)
}

func TestArrayThatIsTheHierarchyMayBeNamed(t *testing.T) {
	dir := t.TempDir()
	writeV3(t, dir, small, nil)
	z := crops
	z.Fields = []spec.Array{{Name: "sat", Pattern: "."}}
	require.EqualValues(t, 12, findOne(t, dir, z).Fields[0].Present())
}

func TestVersion3TakesPrecedence(t *testing.T) {
	dir := t.TempDir()
	writeV2(t, dir, ".", "0.0.0", "0.0.1")
	writeV3(t, dir, small, func(place []int64) bool { return place[0] == 0 })
	c := findOne(t, dir, crops)
	require.True(t, c.Fields[0].Array.Keys.Prefixed)
	require.EqualValues(t, 4, c.Fields[0].Present())
	require.EqualValues(t, 2, c.Fields[0].Ignored(), "objects of version 2")
}

func TestNonObjectsAreIgnoredAndCounted(t *testing.T) {
	dir := t.TempDir()
	writeV2(t, dir, ".", "0.0.0", "2.1.1")
	for _, name := range []string{"3.0.0", "0.0", "00.0.0", "0.0.0.0", "0.0.0~", "README", "c"} {
		write(t, filepath.Join(dir, name), "x")
	}
	write(t, filepath.Join(dir, "old/0.0.1"), "x") // one directory, which is not entered
	write(t, filepath.Join(dir, ".tmp"), "x")      // listings skip it
	f := &findOne(t, dir, crops).Fields[0]
	require.Equal(t, []int64{0, 11}, present(f))
	require.EqualValues(t, 8, f.Ignored())

	dir = t.TempDir()
	writeV3(t, dir, small, nil)
	for _, name := range []string{"c/0/0/2", "c/3/0/0", "c/00/0", "d/0", "c/0/x"} {
		write(t, filepath.Join(dir, name), "x")
	}
	writeV3(t, filepath.Join(dir, "c/0/0/nested"), small, nil)
	f = &findOne(t, dir, crops).Fields[0]
	require.EqualValues(t, 12, f.Present())
	require.EqualValues(t, 6, f.Ignored())
}

func TestAnyChangeChangesVersion(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "zarr.json"), groupV3)
	a := filepath.Join(dir, "a")
	writeV3(t, a, small, nil)
	writeV3(t, filepath.Join(dir, "b"), small, nil)
	z := named("a")
	version := func() storage.Version { return findOne(t, dir, z).Object.Version }
	was := version()
	for range 3 {
		require.Equal(t, was, version())
	}
	write(t, filepath.Join(a, "ignored"), "x")
	require.NoError(t, os.Remove(filepath.Join(dir, "b/c/0/0/0")))
	require.Equal(t, was, version(), "what is not of the cube")
	for name, change := range map[string]func(){
		"an object is rewritten": func() {
			path := filepath.Join(a, "c/0/0/0")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			write(t, path+"~", string(b))
			require.NoError(t, os.Rename(path+"~", path))
		},
		"an object is gone":      func() { require.NoError(t, os.Remove(filepath.Join(a, "c/1/0/0"))) },
		"an object is another's": func() { require.NoError(t, os.Rename(filepath.Join(a, "c/2/0/0"), filepath.Join(a, "c/1/0/0"))) },
		"a document": func() {
			b, err := os.ReadFile(filepath.Join(a, "zarr.json"))
			require.NoError(t, err)
			write(t, filepath.Join(a, "zarr.json"), string(b)+" ")
		},
		"the group": func() { write(t, filepath.Join(dir, "zarr.json"), groupV3+" ") },
	} {
		change()
		now := version()
		require.NotEqual(t, was, now, name)
		require.NotZero(t, now.ChangeTimeNanos, name)
		was = now
	}
}

func TestListingOrderDoesNotMatter(t *testing.T) {
	dir := t.TempDir()
	writeV3(t, dir, small, nil)
	under := openLocal(t, dir)
	forward, err := find(t, under, crops)
	require.NoError(t, err)
	backward, err := find(t, wrapped{Storage: under, list: func(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
		var list []storage.Object
		err := under.List(ctx, match, func(o storage.Object) error { list = append(list, o); return nil })
		for i := range list {
			for range 2 { // as an object store may, if its pages overlap
				if err == nil {
					err = visit(list[len(list)-1-i])
				}
			}
		}
		return err
	}}, crops)
	require.NoError(t, err)
	require.Equal(t, forward[0].Object, backward[0].Object)
	require.EqualValues(t, 12, backward[0].Fields[0].Present())
	for n := range int64(12) {
		a, _ := forward[0].Fields[0].Object(n)
		b, _ := backward[0].Fields[0].Object(n)
		require.Equal(t, a, b)
	}
}

func TestManyArraysAreFoundTogether(t *testing.T) {
	dir := t.TempDir()
	const n = 500
	write(t, filepath.Join(dir, "plate.zarr/.zgroup"), `{"zarr_format": 2}`)
	for i := range n {
		writeV2(t, filepath.Join(dir, fmt.Sprintf("plate.zarr/%d/%d", i/25, i%25)), "/", "0/0/0")
	}
	text := refused(t, openLocal(t, dir), crops)
	require.Contains(t, text, "plate.zarr has 500 arrays with all dimensions of --crop: choose with --array")
	require.Contains(t, text, "  0/0: t=6, y=4, x=4 <u2, in chunks of [2 2 2]\n")
	require.Contains(t, text, "  and 480 more")
	require.Equal(t, "plate.zarr", findOne(t, dir, named("7/3")).Object.Path)

	require.NoError(t, os.Remove(filepath.Join(dir, "plate.zarr/.zgroup")))
	list, err := find(t, openLocal(t, dir), crops)
	require.NoError(t, err)
	require.Len(t, list, n, "without a group each is a hierarchy of its own")
	for i := 1; i < n; i++ {
		require.Less(t, list[i-1].Object.Path, list[i].Object.Path)
		require.EqualValues(t, 1, list[i].Fields[0].Present())
	}
}
