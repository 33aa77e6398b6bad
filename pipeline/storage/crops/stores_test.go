package crops

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

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
