package pipeline

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local/localtest"
)

// capsOf returns the names of a storage's capabilities.
func capsOf(s storage.Storage) string {
	var names []string
	v := reflect.ValueOf(s.Caps())
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return strings.Join(names, " ")
}

// Each stack of storages has the capabilities of what it reads from, as far as they fit its objects;
// records are read with the same ones.
func TestEachStackHasItsCapabilities(t *testing.T) {
	served := serveShards(t, synthetic.Shape{Format: "tar"}, 20)
	lines := makeSource(t, "lines", 2, 100, never)
	cubes := t.TempDir()
	writeCube(t, filepath.Join(cubes, "a.zarr"), 0, 20)
	folders := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folders, "a"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folders, "a/x.txt"), []byte("x"), 0o644))
	arrays := t.TempDir()
	var b bytes.Buffer
	require.NoError(t, synthetic.Shape{Format: "npy", RecordBytes: 100}.WriteShard(&b, 0, 300, nil))
	require.NoError(t, os.WriteFile(filepath.Join(arrays, "x.npy"), b.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(arrays, "y.npy"), b.Bytes(), 0o644))

	together := testSpec(t, arrays)
	together.Format.Arrays = []spec.Array{{Name: "x", Pattern: "x.npy"}, {Name: "y", Pattern: "y.npy"}}
	files := testSpec(t, folders)
	files.Format.Name = "files"
	cached := testSpec(t, served.url)
	cached.Cache.Off, cached.Cache.Dir, cached.Cache.SizeBytes = false, filepath.Join(t.TempDir(), "cache"), 64<<20
	mixed := func(s spec.Spec, a, b string) spec.Spec {
		s.Dataset, s.IndexDir, s.Order.Length = "", t.TempDir(), 256
		s.Mix.Sources = []spec.Source{{Name: "a", Weight: 1, Dataset: a}, {Name: "b", Weight: 1, Dataset: b}}
		return s
	}
	const crops = "Omitted Parts Outline Check Verifier Hints AdjustProfile"
	for name, c := range map[string]struct {
		spec spec.Spec
		want string
	}{
		"local":                     {testSpec(t, lines), "StatStable Omitted Mapper OpenResident Uncached"},
		"arrays":                    {together, "StatStable Omitted Join Uncached"},
		"fileset":                   {files, "Omitted Outline Status AdjustProfile"},
		"crops":                     {cropSpec(t, cubes), crops},
		"remote":                    {testSpec(t, served.url), "StatStable Omitted OpenSequential Fill Hints"},
		"cache":                     {cached, "StatStable Omitted Mapper OpenSequential Uncached Hints"},
		"mixture of files":          {mixed(testSpec(t, ""), lines, lines), "StatStable Omitted Mapper OpenResident Uncached"},
		"mixture of crops":          {mixed(cropSpec(t, ""), cubes, cubes), crops},
		"mixture of arrays":         {mixed(together, arrays, arrays), "StatStable Omitted Uncached"},
		"mixture with a service":    {mixed(testSpec(t, ""), served.url, served.dir), "StatStable Omitted Mapper OpenResident OpenSequential Uncached Fill Hints"},
		"mixture with a disk cache": {mixed(cached, served.url, served.dir), "StatStable Omitted Mapper OpenResident OpenSequential Uncached Hints"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, c.spec)
			g, release := d.acquire()
			defer release()
			want := c.want
			if localtest.Open(t, nil).Caps().Mapper == nil { // here files are never mapped
				want = strings.Replace(want, "Mapper ", "", 1)
			}
			require.Equal(t, want, capsOf(g.mount.files))
			require.Equal(t, want, capsOf(g.mount.reads))
		})
	}
}
