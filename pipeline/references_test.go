package pipeline

import (
	"archive/zip"
	"encoding/json"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// writeDescribed writes a reference file and a zip file for a cube in a directory next to them. Its
// files are concatenated in one.
func writeDescribed(t testing.TB, dir, cube string) {
	t.Helper()
	references := map[string]any{}
	var all []byte
	z, err := os.Create(filepath.Join(dir, "z.zip"))
	require.NoError(t, err)
	w := zip.NewWriter(z)
	root := filepath.Join(dir, cube)
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		key, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if strings.HasSuffix(key, "zarr.json") {
			references[key] = string(b)
		} else {
			references[key] = []any{"raw/all data.bin", len(all), len(b)}
			all = append(all, b...)
		}
		m, err := w.CreateHeader(&zip.FileHeader{Name: key, Method: zip.Store})
		require.NoError(t, err)
		_, err = m.Write(b)
		return err
	}))
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "raw"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "raw", "all data.bin"), all, 0o600))
	b, err := json.Marshal(map[string]any{"version": 1, "refs": references})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "r.json"), b, 0o600))
}

// A hierarchy described by one file is the same dataset on a disk and at a web server, and has the
// records of its directory, if that has the same name.
func TestReferencedHierarchyEqualsItsDirectory(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, filepath.Join(dir, "a.zarr"), 0, 20)
	writeDescribed(t, dir, "a.zarr")
	server := faultserver.New()
	for _, name := range []string{"r.json", "z.zip", "raw/all data.bin"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		server.PutBytes("sets/"+name, b)
	}
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	for _, name := range []string{"r.json", "z.zip"} {
		named := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.CopyFS(named, os.DirFS(filepath.Join(dir, "a.zarr"))))
		s := cropSpec(t, named)
		directory := open(t, s)
		want := sums(t, directory, s, nil)
		for _, dataset := range []string{filepath.Join(dir, name), h.URL + "/sets/" + name, filepath.Join(dir, "*"+filepath.Ext(name)), filepath.Join(dir, "{"+name+",[a-y]*"+filepath.Ext(name)+"}")} {
			s.Dataset, s.IndexDir = dataset, t.TempDir()
			d := open(t, s)
			require.Equal(t, []string{name}, d.Cubes(), dataset)
			require.Equal(t, directory.Fingerprint(), d.Fingerprint(), dataset)
			require.Equal(t, want, sums(t, d, s, nil), dataset)
		}
	}
}

// If a file in the place of a zip or reference file is something else, the error names what it is.
func TestFileOfOtherKindInPlaceOfStoreIsNamed(t *testing.T) {
	for name, says := range map[string]string{"a.json": "a.json: it is an HTML page", "a.zip": "a.zip: it is an HTML page", "gz.json": "gz.json: it is compressed with gzip: gunzip -c FILE", "cut.zip": "cut.zip: it is not a zip file, or was cut off", "list.json": `expected an object, {…}, not "["`} {
		content := map[string]string{"gz.json": "\x1f\x8b\x08\x00", "cut.zip": "PK\x03\x04", "list.json": "[]"}[name]
		if content == "" {
			content = "<!DOCTYPE html><p>log in</p>"
		}
		at := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
		_, err := Open(t.Context(), cropSpec(t, at), Options{})
		require.ErrorContains(t, err, says)
	}
}
