package cubes

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/cubes/refs"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// stored is small as some kind of store has it. write writes it below a directory, and over shows it as
// a hierarchy.
type stored struct {
	name  string
	array encode.Array
	write func(t *testing.T, dir string, a encode.Array) map[string]bool
	over  func(under storage.Storage) storage.Storage
}

func plainly(under storage.Storage) storage.Storage { return under }

// stores are of each kind that there is. In all of them the cube is a.zarr.
func stores() []stored {
	sharded, unsharded := small, small
	sharded.Codec = encode.BloscZstd
	unsharded.Codec, unsharded.Object = encode.BloscLZ4, small.Brick
	raw := small
	raw.IndexAtStart, raw.NoChecksum = true, true
	one := func(name string) func(storage.Storage) storage.Storage {
		return func(under storage.Storage) storage.Storage { return refs.Over(under, refs.Config{One: name}) }
	}
	v3 := func(t *testing.T, dir string, a encode.Array) map[string]bool { return write(t, dir, a) }
	return []stored{
		{"version 2", unsharded, writeV2, plainly},
		{"version 3, sharded", sharded, v3, plainly},
		{"version 3, sharded, uncompressed", raw, v3, plainly},
		{"a zip file", sharded, writeZip, one("a.zip")},
		{"references", unsharded, writeReferences, one("a.json")},
	}
}

// writeV2 writes an unsharded array as version 2 has it.
func writeV2(t *testing.T, dir string, a encode.Array) map[string]bool {
	absent := write(t, dir, a)
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
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".zarray"), fmt.Appendf(nil, `{"zarr_format": 2, "shape": %s, "chunks": %s, "dtype": "<u2",
"compressor": {"id": "blosc"}, "fill_value": %v, "order": "C", "filters": null}`, text(a.Shape), text(a.Brick), a.Fill), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".zattrs"), fmt.Appendf(nil, `{"_ARRAY_DIMENSIONS": %s}`, text(a.Dims)), 0o644))
	return absent
}

// filesIn are the files below a directory.
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
func writeZip(t *testing.T, dir string, a encode.Array) map[string]bool {
	inner := t.TempDir()
	absent := write(t, inner, a)
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

// writeReferences writes an array of version 2 as a.json, whose chunks lie in two files.
func writeReferences(t *testing.T, dir string, a encode.Array) map[string]bool {
	inner := t.TempDir()
	absent := writeV2(t, inner, a)
	references := map[string]any{}
	data := map[string][]byte{}
	for at, b := range filesIn(t, inner) {
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
