package crops

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// suiteBytes is the size of a crop in the suite's files.
const suiteBytes = 64

// without is a storage of cubes whose objects appear without the header and the padding of the last
// crop.
//
//	header │ crop │ crop │ … │ crop
//	       └── the file ──┘
type without struct {
	*Storage
	t     *testing.T
	sizes map[string]int64 // sizes of the files
	more  map[string]int64 // additional bytes in the cube's object
	head  map[string]int64
}

func (s *without) shorter(o storage.Object) storage.Object {
	s.more[o.Path], s.head[o.Path] = o.SizeBytes-s.sizes[o.Path], int64(len(s.cubes[o.Path].header))
	o.SizeBytes = s.sizes[o.Path]
	return o
}

func (s *without) List(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
	if len(s.sizes) == 0 { // a dataset without arrays is a user's mistake
		require.ErrorContains(s.t, s.Storage.List(ctx, match, visit), "there is no Zarr store")
		return nil
	}
	// A hierarchy is a directory too, so cubes asks about each directory whether it is one.
	asked := func(path string, isDir bool) bool {
		_, isFile := s.sizes[path]
		return (isDir || isFile) && match(path, isDir)
	}
	return s.Storage.List(ctx, asked, func(o storage.Object) error { return visit(s.shorter(o)) })
}

func (s *without) Stat(ctx context.Context, path string) (storage.Object, error) {
	o, err := s.Storage.Stat(ctx, path)
	if err == nil {
		o = s.shorter(o)
	}
	return o, err
}

func (s *without) Submit(reads []*storage.Read) {
	below := make([]*storage.Read, len(reads))
	for i, r := range reads {
		x := *r
		switch {
		case r.OffsetBytes < 0:
		case r.OffsetBytes > r.Object.SizeBytes-int64(len(r.Buf)):
			x.OffsetBytes = 1 << 60 // the padding of the last crop is not in the file
		default:
			x.OffsetBytes += s.head[r.Object.Path]
		}
		x.Object.SizeBytes += s.more[r.Object.Path]
		x.Done = func(err error) {
			if failed, ok := errors.AsType[*storage.Error](err); ok {
				again := *failed
				again.OffsetBytes = r.OffsetBytes
				err = &again
			}
			r.Done(err)
		}
		below[i] = &x
	}
	s.Storage.Submit(below)
}

// suite makes a storage of files, each as an array of its bytes in the order of crops.
func suite(a encode.Array, memory int64) storagetest.New {
	return func(t *testing.T, files map[string][]byte) storage.Storage {
		dir := t.TempDir()
		sizes := map[string]int64{}
		for name, content := range files {
			one := a
			one.Shape = []int64{(max(int64(len(content)), 1) + suiteBytes - 1) / suiteBytes * suiteBytes}
			require.NoError(t, one.Write(filepath.Join(dir, filepath.FromSlash(name)), func(place []int64, b []byte) bool {
				if from := place[0] * one.Chunk[0]; from < int64(len(content)) {
					copy(b, content[from:])
				}
				return true
			}))
			sizes[name] = int64(len(content))
		}
		crop := []spec.DimValue{{Dim: "x", Value: suiteBytes}}
		s := Wrap(openLocal(t, dir), Config{Spec: spec.Zarr{Crop: crop}, Base: path.Base(dir), MemoryBytes: memory})
		return &without{s, t, sizes, map[string]int64{}, map[string]int64{}}
	}
}

// Hints are about crops, not about what is read below.
func TestCropsPassCapabilitiesOn(t *testing.T) {
	storagetest.RunWrapper(t, func(_ *testing.T, below storage.Storage) storage.Storage {
		return Wrap(below, Config{})
	}, map[string]storagetest.Passing{
		"Status":        storagetest.Passed,
		"Omitted":       storagetest.Own,
		"Parts":         storagetest.Own,
		"Outline":       storagetest.Own,
		"Check":         storagetest.Own,
		"Verifier":      storagetest.Own,
		"Hints":         storagetest.Own,
		"AdjustProfile": storagetest.Own,
	})
}

// Crops one after the other are an object like any other: every range of it can be read.
func TestGridsPassStorageSuite(t *testing.T) {
	a := encode.Array{Object: []int64{1 << 15}, Chunk: []int64{512}, Dims: []string{"x"}, DataType: "uint8", ItemBytes: 1}
	for i, codec := range encode.Codecs {
		if testing.Short() && i > 0 {
			break // with the race detector, which the codecs don't need
		}
		a.Codec = codec
		t.Run("sharded "+string(codec), func(t *testing.T) { storagetest.Run(t, suite(a, 1<<20)) })
	}
	a.IndexAtStart, a.NoChecksum = true, true
	t.Run("nothing kept", func(t *testing.T) { storagetest.Run(t, suite(a, 0)) })
}

// stored is small in one kind of store. write writes it below a directory, and over presents it as
// a hierarchy.
type stored struct {
	name  string
	array encode.Array
	write func(t *testing.T, dir string, a encode.Array, flipped uint16) map[string]bool
	over  func(under storage.Storage) storage.Storage
	// object is a file that holds chunks, objectOf reports which ones, and document describes the
	// array.
	object, document string
	objectOf         func(chunk []int64) bool
}

func plainly(under storage.Storage) storage.Storage { return under }

// stores returns one store of each kind. In all of them the cube is a.zarr.
func stores() []stored {
	sharded, unsharded := small, small
	sharded.Codec = encode.BloscZstd
	unsharded.Codec, unsharded.Object = encode.BloscLZ4, small.Chunk
	raw := small
	raw.IndexAtStart, raw.NoChecksum = true, true
	plain := raw
	plain.Object = small.Chunk
	one := func(name string) func(storage.Storage) storage.Storage {
		return func(under storage.Storage) storage.Storage { return refs.Wrap(under, refs.Config{One: name}) }
	}
	first := func(chunk []int64) bool { return chunk[0]+chunk[1]+chunk[2] == 0 }
	firsts := func(chunk []int64) bool { return max(chunk[0], chunk[1], chunk[2]) < 2 }
	all := func([]int64) bool { return true }
	v3 := func(t *testing.T, dir string, a encode.Array, flipped uint16) map[string]bool {
		return writeOf(t, dir, a, flipped)
	}
	return []stored{
		{"version 2", unsharded, writeV2, plainly, "0.0.0", ".zarray", first},
		{"version 3, sharded", sharded, v3, plainly, "c/0/0/0", "zarr.json", firsts},
		{"version 3, sharded, uncompressed", raw, v3, plainly, "c/0/0/0", "zarr.json", firsts},
		{"a zip file", sharded, writeZip, one("a.zip"), "a.zip", "", all},
		{"references", plain, writeReferences, one("a.json"), "0.bin", "a.json", func(chunk []int64) bool { return chunk[0] == 0 }},
	}
}

// writeV2 writes an unsharded array in version 2.
func writeV2(t *testing.T, dir string, a encode.Array, flipped uint16) map[string]bool {
	absent := writeOf(t, dir, a, flipped)
	require.NoError(t, os.Remove(filepath.Join(dir, "zarr.json")))
	for at := range filesIn(t, dir) {
		place, is := strings.CutPrefix(at, "c/")
		require.True(t, is)
		require.NoError(t, os.Rename(filepath.Join(dir, at), filepath.Join(dir, strings.ReplaceAll(place, "/", "."))))
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "c")))
	text := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	compressor := "null"
	if a.Codec == encode.BloscLZ4 {
		compressor = `{"id": "blosc"}`
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".zarray"), fmt.Appendf(nil, `{"zarr_format": 2, "shape": %s, "chunks": %s, "dtype": "<u2",
"compressor": %s, "fill_value": %v, "order": "C", "filters": null}`, text(a.Shape), text(a.Chunk), compressor, a.Fill), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".zattrs"), fmt.Appendf(nil, `{"_ARRAY_DIMENSIONS": %s}`, text(a.Dims)), 0o644))
	return absent
}

// filesIn returns the files below a directory, with their content.
func filesIn(t *testing.T, dir string) map[string][]byte {
	files := map[string][]byte{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, at))
		files[at] = b
		return err
	}))
	return files
}

// writeZip writes an array as members of a.zip.
func writeZip(t *testing.T, dir string, a encode.Array, flipped uint16) map[string]bool {
	inner := t.TempDir()
	absent := writeOf(t, inner, a, flipped)
	f, err := os.Create(filepath.Join(dir, "a.zip"))
	require.NoError(t, err)
	w := zip.NewWriter(f)
	for at, b := range filesIn(t, inner) {
		m, err := w.CreateHeader(&zip.FileHeader{Name: at, Method: zip.Store})
		require.NoError(t, err)
		_, err = m.Write(b)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	return absent
}

// writeReferences writes a version 2 array as a.json, whose chunks are in two files.
func writeReferences(t *testing.T, dir string, a encode.Array, flipped uint16) map[string]bool {
	inner := t.TempDir()
	absent := writeV2(t, inner, a, flipped)
	references := map[string]any{}
	data := map[string][]byte{}
	files := filesIn(t, inner)
	for _, at := range slices.Sorted(maps.Keys(files)) {
		b := files[at]
		if at[0] == '.' {
			references[at] = string(b)
			continue
		}
		name := fmt.Sprintf("%c.bin", at[0])
		references[at] = []any{name, len(data[name]), len(b)}
		data[name] = append(data[name], b...)
	}
	b, err := json.Marshal(references)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), b, 0o644))
	for name, b := range data {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	return absent
}
