package listing

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestRefusalsNameAvailableArrays(t *testing.T) {
	dir := t.TempDir()
	require.Contains(t, refused(t, openLocal(t, dir), crops), "there is no Zarr store")
	write(t, filepath.Join(dir, "zarr.json"), groupV3)
	require.Equal(t, "the hierarchy has no array with all dimensions of --crop; it has none at all", refused(t, openLocal(t, dir), crops))

	flat := small
	flat.Shape, flat.Chunk, flat.Object, flat.Dims = []int64{6, 4}, []int64{2, 2}, []int64{2, 2}, []string{"t", "cell"}
	writeV3(t, filepath.Join(dir, "flat"), flat, nil)
	require.Equal(t, "the hierarchy has no array with all dimensions of --crop; it has\n  flat: t=6, cell=4 <u2, in chunks of [2 2]", refused(t, openLocal(t, dir), crops))
	require.Equal(t, "the hierarchy has no array flat/x; it has\n  flat: t=6, cell=4 <u2, in chunks of [2 2]", refused(t, openLocal(t, dir), named("flat/x")))

	// If none of many arrays is the named one, the error lists the contents of the first.
	dir = t.TempDir()
	for _, name := range []string{"b", "a", "c"} {
		writeV3(t, filepath.Join(dir, name), flat, nil)
	}
	require.Contains(t, refused(t, openLocal(t, dir), named("temperature")), "a has no array temperature; it is an array itself, which needs no --array: it has\n  .: t=6")
}

func TestAllRefusalsAreReportedAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "zarr.json"), groupV3)
	writeV3(t, filepath.Join(dir, "good"), small, nil)
	writeV2(t, filepath.Join(dir, "lzma"), ".")
	write(t, filepath.Join(dir, "lzma/.zarray"), strings.Replace(zarray("."), `"compressor": null`, `"compressor": {"id": "lzma"}`, 1))
	write(t, filepath.Join(dir, "broken/zarr.json"), `{"zarr_format": 3, "node_type": "array", `)
	write(t, filepath.Join(dir, "empty/.zarray"), "")
	under := openLocal(t, dir)
	list, err := find(t, under, crops)
	require.NoError(t, err, "what is not asked for may be as it likes")
	require.Equal(t, "good", list[0].Fields[0].Path)
	text := refused(t, under, named("lzma", "broken", "empty", "good"))
	require.Contains(t, text, "lzma/.zarray: ")
	require.Contains(t, text, "broken/zarr.json: ")
	require.Contains(t, text, "empty/.zarray has 0 bytes")

	// The problem of the only array is reported, not that something is missing.
	for _, name := range []string{"good", "broken", "empty"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
	}
	require.Contains(t, refused(t, openLocal(t, dir), crops), "lzma")

	// If there are several hierarchies, the problem of each is reported.
	dir = t.TempDir()
	for _, name := range []string{"a", "b"} {
		write(t, filepath.Join(dir, name, ".zarray"), "[]")
	}
	text = refused(t, openLocal(t, dir), crops)
	require.Contains(t, text, "a/.zarray: ")
	require.Contains(t, text, "b/.zarray: ")
}

func TestPathsOutsideHierarchyAreRefused(t *testing.T) {
	dir := t.TempDir()
	writeV3(t, filepath.Join(dir, "outside"), small, nil)
	writeV3(t, filepath.Join(dir, "in/data"), small, nil)
	under := openLocal(t, filepath.Join(dir, "in"))
	for _, path := range []string{"../outside", "data/../../outside", "data//x", "./data", "a\x00b"} {
		require.Contains(t, refused(t, under, named(path)), "is not a path of an array or group")
	}
}

// TestSparseHugeArrayStoresOnlyExistingObjects: the table of an array holds its existing objects,
// not all possible ones.
func TestSparseHugeArrayStoresOnlyExistingObjects(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "zarr.json"), `{"zarr_format": 3, "node_type": "array", "shape": [1000000, 1000000, 1000000], "data_type": "uint8",
"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1, 1]}}, "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}]}`)
	write(t, filepath.Join(dir, "c/999999/999999/999999"), "x")
	write(t, filepath.Join(dir, "c/0/0/7"), "x")
	z := spec.Zarr{Crop: []spec.DimValue{{Value: 1}, {Value: 1}, {Value: 1}}, Stride: []spec.DimValue{{Value: 1 << 15}, {Value: 1 << 15}, {Value: 1 << 15}}}
	f := &findOne(t, dir, z).Fields[0]
	require.EqualValues(t, 2, f.Present())
	require.True(t, f.Has(1_000_000_000_000_000_000-1))
	require.True(t, f.Has(7))
	require.False(t, f.Has(8))
	o, _ := f.Object(1_000_000_000_000_000_000 - 1)
	require.Equal(t, "c/999999/999999/999999", o.Path)
}

// A link to a directory is followed, whether to a store, a group, an array or a part of its
// objects. A link back up, or a broken one, is an error if it could hide objects.
func TestLinksToDirectoriesAreFollowed(t *testing.T) {
	elsewhere := t.TempDir()
	writeV3(t, elsewhere, small, nil)
	link := func(t *testing.T, from, to string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(from), 0o755))
		require.NoError(t, os.Symlink(to, from))
	}
	t.Run("an array", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "zarr.json"), groupV3)
		link(t, filepath.Join(dir, "data"), elsewhere)
		require.EqualValues(t, 12, findOne(t, dir, named("data")).Fields[0].Present())
		require.EqualValues(t, 12, findOne(t, dir, crops).Fields[0].Present())
	})
	t.Run("a group above it", func(t *testing.T) {
		dir := t.TempDir()
		writeV3(t, filepath.Join(dir, "real/data"), small, nil)
		write(t, filepath.Join(dir, "zarr.json"), groupV3)
		link(t, filepath.Join(dir, "group"), filepath.Join(dir, "real"))
		require.EqualValues(t, 12, findOne(t, dir, named("group/data")).Fields[0].Present())
	})
	t.Run("objects", func(t *testing.T) {
		for at, present := range map[string]int64{"c": 12, "c/1": 4, "c/1/0": 2, "c/1/0/0": 1} {
			dir := t.TempDir()
			writeV3(t, dir, small, func([]int64) bool { return false })
			link(t, filepath.Join(dir, at), filepath.Join(elsewhere, at))
			require.EqualValues(t, present, findOne(t, dir, crops).Fields[0].Present(), at)
		}
	})
	t.Run("a store beside others", func(t *testing.T) {
		dir := t.TempDir()
		writeV3(t, filepath.Join(dir, "a"), small, nil)
		link(t, filepath.Join(dir, "b"), elsewhere)
		list, err := find(t, openLocal(t, dir), crops)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, "b", list[1].Object.Path)
		require.EqualValues(t, 12, list[1].Fields[0].Present())
	})
	t.Run("a link that leads back", func(t *testing.T) {
		dir := t.TempDir()
		writeV3(t, dir, small, func([]int64) bool { return false })
		link(t, filepath.Join(dir, "c"), ".")
		require.Contains(t, refused(t, openLocal(t, dir), crops), "c is not a directory: the array has objects below that name")
	})
	t.Run("a directory that leads back", func(t *testing.T) {
		dir := t.TempDir()
		writeV3(t, filepath.Join(dir, "root/array"), small, func([]int64) bool { return true })
		write(t, filepath.Join(dir, "root/zarr.json"), groupV3)
		link(t, filepath.Join(dir, "root/up"), "..")
		require.EqualValues(t, 12, findOne(t, filepath.Join(dir, "root"), named("array")).Fields[0].Present())
		require.Contains(t, refused(t, openLocal(t, filepath.Join(dir, "root")), named("up/root/array")), "up/root is not a directory, and an array lies below that name")
	})
	t.Run("a link to nothing", func(t *testing.T) {
		dir := t.TempDir()
		writeV3(t, filepath.Join(dir, "a"), small, nil)
		link(t, filepath.Join(dir, "b"), "../disk-that-is-not-there/b")
		require.Contains(t, refused(t, openLocal(t, dir), crops), "b: no such file or directory: mend or remove the link, or leave it out")
	})
}

// TestObjectsOfOtherEncodingAreAnError: an array with only such objects does not read as fill
// values.
func TestObjectsOfOtherEncodingAreAnError(t *testing.T) {
	for separator, object := range map[string]string{".": "0/1/0", "/": "0.1.0"} {
		dir := t.TempDir()
		writeV2(t, filepath.Join(dir, "a"), separator, object)
		text := refused(t, openLocal(t, dir), crops)
		require.Contains(t, text, "correct its dimension_separator or chunk_key_encoding")
		require.Contains(t, text, "such as \"0"+separator+"0"+separator+"0\"")
		writeV2(t, filepath.Join(dir, "a"), separator, strings.ReplaceAll("2 1 1", " ", separator))
		require.EqualValues(t, 1, findOne(t, dir, crops).Fields[0].Present(), "left-overs are")
	}
	dir := t.TempDir()
	writeV3(t, dir, small, func([]int64) bool { return false })
	require.Empty(t, present(&findOne(t, dir, crops).Fields[0]), "an array may have no objects at all")
	write(t, filepath.Join(dir, "0/0/0"), "x")
	require.Contains(t, refused(t, openLocal(t, dir), crops), "correct its")
}

func TestChangeDuringListingIsAnError(t *testing.T) {
	var dir string
	for name, change := range map[string]func(){
		"a document": func() { write(t, filepath.Join(dir, "a/.zarray"), zarray("/")+" ") },
		"attributes": func() { write(t, filepath.Join(dir, "a/.zattrs"), zattrs+" ") },
		"is removed": func() { require.NoError(t, os.Remove(filepath.Join(dir, "a/.zattrs"))) },
		"another version": func() {
			require.NoError(t, os.Rename(filepath.Join(dir, "b/.zarray"), filepath.Join(dir, "a/.zarray")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir = t.TempDir()
			writeV2(t, filepath.Join(dir, "a"), ".", "0.0.0")
			writeV2(t, filepath.Join(dir, "b"), ".", "0.0.0")
			under := openLocal(t, dir)
			list, err := find(t, wrapped{Storage: under, list: func(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
				change() // documents have been read, objects not yet listed
				return under.List(ctx, match, visit)
			}}, named("a"))
			require.ErrorIs(t, err, storage.ErrChanged)
			require.ErrorContains(t, err, "a/.z")
			require.Empty(t, list)
		})
	}
	t.Run("an object", func(t *testing.T) {
		dir = t.TempDir()
		writeV2(t, dir, ".", "0.0.0")
		under := openLocal(t, dir)
		_, err := find(t, wrapped{Storage: under, list: func(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
			return under.List(ctx, match, func(o storage.Object) error {
				if err := visit(o); err != nil {
					return err
				}
				o.SizeBytes++
				return visit(o)
			})
		}}, crops)
		require.ErrorIs(t, err, storage.ErrChanged)
	})
}

func TestInterruptedListingIsAnError(t *testing.T) {
	dir := t.TempDir()
	writeV3(t, filepath.Join(dir, "a/b"), small, nil)
	under := openLocal(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	listings := 0
	s := wrapped{Storage: under, list: func(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
		if listings++; listings == 2 {
			cancel()
		}
		return under.List(ctx, match, visit)
	}}
	_, err := Find(ctx, Config{Under: s, Spec: crops})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, listings)
}

// A directory in the place of an object is not taken for an absent object.
func TestDirectoryIsNotAnObject(t *testing.T) {
	dir := t.TempDir()
	writeV3(t, dir, small, nil)
	var object string
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "c"), func(at string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			object = at
		}
		return err
	}))
	require.NoError(t, os.Remove(object))
	require.NoError(t, os.Mkdir(object, 0o755))
	name, err := filepath.Rel(dir, object)
	require.NoError(t, err)
	require.Contains(t, refused(t, openLocal(t, dir), crops), name+" is a directory, and has to be a file")
}

// A pipe, directory or device in the place of a document is not taken for a missing one: the array
// would be a different one.
func TestPipeInPlaceOfDocumentIsNamed(t *testing.T) {
	for _, name := range []string{"a/zarr.json", "a/.zarray", "a/.zattrs"} {
		for kind, do := range map[string]func(string) error{
			"a pipe":      func(p string) error { return unix.Mkfifo(p, 0o600) },
			"a directory": func(p string) error { return os.Mkdir(p, 0o755) },
			"a device":    func(p string) error { return os.Symlink("/dev/zero", p) },
			"a socket":    func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				dir := t.TempDir()
				writeV2(t, filepath.Join(dir, "a"), ".", "0.0.0")
				path := filepath.Join(dir, name)
				require.NoError(t, os.RemoveAll(path))
				require.NoError(t, do(path))
				_, err := find(t, openLocal(t, dir), crops)
				require.ErrorIs(t, err, storage.ErrNoFile)
				require.ErrorContains(t, err, path)
				require.ErrorContains(t, err, "remove it")
			})
		}
	}
}
