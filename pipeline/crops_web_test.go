package pipeline

import (
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// A cube at a web server without listings is the same as the cube of its files on a disk: the same
// fingerprint and streams.
func TestRemoteGridEqualsLocalFiles(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, filepath.Join(dir, "a.zarr"), 0, 20)
	server := faultserver.New()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		server.PutBytes("sets"+strings.TrimPrefix(path, dir), b)
		return err
	}))
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)

	s := cropSpec(t, filepath.Join(dir, "a.zarr"))
	local := open(t, s)
	want := sums(t, local, s, nil)
	s.Dataset, s.IndexDir = h.URL+"/sets/a.zarr", t.TempDir()
	d := open(t, s)
	require.Equal(t, local.Fingerprint(), d.Fingerprint())
	require.Equal(t, want, sums(t, d, s, nil))

	// The array by itself has another name.
	s.Dataset, s.IndexDir = h.URL+"/sets/a.zarr/data", t.TempDir()
	s.Format.Zarr.Fields = nil
	require.Equal(t, []string{"data"}, open(t, s).Cubes())

	for dataset, text := range map[string]string{
		"/sets/a{0..3}.zarr":     "stands for 4 folders: name one, since a web server does not list what it has",
		"/sets":                  "the dataset has to be an array or a group",
		"/sets/a.zarr/data/c/0":  "the dataset has to be an array or a group",
		"/sets/a.zarr/zarr.json": "this is a document of a Zarr array or group, not a reference file: name its directory",
	} {
		s.Dataset, s.IndexDir = h.URL+dataset, t.TempDir()
		_, err := Open(t.Context(), s, Options{})
		require.ErrorContains(t, err, text)
	}
}
