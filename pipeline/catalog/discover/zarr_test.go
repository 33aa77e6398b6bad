package discover

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const (
	arrayV2 = `{"zarr_format": 2, "shape": [512, 1024, 100], "chunks": [16, 64, 64], "dtype": "<i2", "compressor": null, "fill_value": 0, "order": "C", "filters": null}`
	namesV2 = `{"_ARRAY_DIMENSIONS": ["time", "y", "x"]}`
	arrayV3 = `{"zarr_format": 3, "node_type": "array", "shape": [9, 5], "data_type": "uint8", "fill_value": 0, "codecs": [{"name": "bytes"}],
		"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 5]}}, "chunk_key_encoding": {"name": "default"}}`
)

// No format is detected for a Zarr hierarchy: the error contains the flags for crops of it. Shards
// next to one are shards.
func TestZarrHierarchiesSuggestHowToReadThem(t *testing.T) {
	chunk := make([]byte, 100)
	for _, c := range []struct {
		name    string
		files   map[string]string
		dataset string // below the directory
		says    string // "" if shards are found
	}{
		{"version 2", map[string]string{"sat.zarr/.zgroup": `{"zarr_format": 2}`, "sat.zarr/data/.zarray": arrayV2, "sat.zarr/data/.zattrs": namesV2, "sat.zarr/data/0.0.0": string(chunk)}, "sat.zarr",
			"sat.zarr holds Zarr arrays: choose which crops of them are records, for example --format zarr --crop time=32,y=128,x=100 (lsiofs help zarr)"},
		{"a directory of hierarchies", map[string]string{"a.zarr/data/.zarray": arrayV2, "a.zarr/.zgroup": `{"zarr_format": 2}`, "a.zarr/data/0.0.0": string(chunk)}, "",
			"--format zarr --crop 32,128,100"},
		{"a name that says nothing", map[string]string{"sat/.zgroup": `{"zarr_format": 2}`, "sat/data/.zarray": arrayV2, "sat/data/0.0.0": string(chunk), "sat/other/.zarray": arrayV2}, "sat",
			"--format zarr --array data --crop 32,128,100"},
		{"an array of version 3, beside prose", map[string]string{"zarr.json": arrayV3, "c/0/0": string(chunk), "notes.txt": "some text\n"}, "",
			"--format zarr --crop 4,5"},
		{"a pattern", map[string]string{"a/zarr.json": arrayV3, "b.zarr/zarr.json": arrayV3}, "b.*", "--format zarr --crop 4,5"},
		{"lines in a name that ends so", map[string]string{"a.zarr/x.jsonl": "{}\n"}, "a.zarr", ""},
		{"shards beside one", map[string]string{"a.zarr/zarr.json": arrayV3, "x.jsonl": "{}\n"}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for path, text := range c.files {
				w.write(path, []byte(text))
			}
			found, err := w.find(filepath.Join(w.dir, c.dataset), spec.Format{Name: "auto"})
			if c.says == "" {
				require.NoError(t, err)
				require.Equal(t, "jsonl", found.Format.Name)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}
