package listing

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// held is a storage that holds memory itself.
type held struct {
	storage.Storage
	bytes int64
}

func (s held) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.HeldBytes = func() int64 { return s.bytes }
	return c
}

func TestDatasetBeyondMemoryIsRefusedWithExplanation(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.zarr/zarr.json"), arrayV3(map[string]string{"attributes": `{"a": "` + strings.Repeat("x", 4<<10) + `"}`}))
	for i := range 12 {
		write(t, filepath.Join(dir, fmt.Sprintf("x.zarr/c/%d/%d/%d", i/4, i/2%2, i%2)), "chunk")
	}
	list := filepath.Join(dir, "list.txt")
	write(t, list, strings.Repeat("0 0 0\n", 20_000))
	under := openLocal(t, dir)
	for name, c := range map[string]struct {
		memoryBytes, heldBytes int64
		list                   string
		want                   string
	}{
		"all fits":                          {100 << 10, 0, "", ""},
		"a document":                        {32 << 10, 0, "", "x.zarr/zarr.json has 4440 bytes, and reading it takes some 69 KiB of memory: use --memory 1MiB or more"},
		"places of objects":                 {100 << 10, 100<<10 - 4440 - 500, "", "the arrays have more than 10 objects, and half of --memory has no room for the places of more: raise --memory"},
		"a list of crops that is too large": {400 << 10, 0, list, "list.txt has more than 102400 bytes, and reading it would take more than half of --memory: raise --memory"},
	} {
		x := crops
		if c.list != "" {
			x.List = c.list
		}
		_, err := Find(t.Context(), Config{Under: held{under, c.heldBytes}, Spec: x, MemoryBytes: c.memoryBytes})
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
	}
}

func TestDocumentsOfAllArraysAreBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		write(t, filepath.Join(dir, fmt.Sprintf("%d.zarr/zarr.json", i)), arrayV3(map[string]string{"attributes": `{"a": "` + strings.Repeat("x", 5<<10) + `"}`}))
	}
	_, err := Find(t.Context(), Config{Under: openLocal(t, dir), Spec: crops, MemoryBytes: 100 << 10})
	require.ErrorContains(t, err, "the documents of all arrays have more than 102400 bytes, and half of --memory has no more room: raise --memory, or name some of the hierarchies by a pattern")
}

// Large documents wait for each other, and an array that has two of them does not wait for itself.
func TestLargeDocumentsAreReadOneAtATime(t *testing.T) {
	dir := t.TempDir()
	for i := range 40 {
		at := filepath.Join(dir, fmt.Sprintf("%d.zarr", i))
		write(t, filepath.Join(at, ".zarray"), `{"zarr_format": 2, "shape": [6, 4, 4], "chunks": [2, 2, 2], "dtype": "<u2", "compressor": null, "fill_value": 0, "order": "C", "filters": null`+strings.Repeat(" ", largeDocument)+`}`)
		write(t, filepath.Join(at, ".zattrs"), `{"_ARRAY_DIMENSIONS": ["t", "y", "x"]`+strings.Repeat(" ", largeDocument)+`}`)
		write(t, filepath.Join(at, "0.0.0"), strings.Repeat("x", 16))
	}
	for _, fields := range [][]spec.Array{nil, {{Pattern: "."}}} {
		x := crops
		x.Fields = fields
		found, err := Find(t.Context(), Config{Under: openLocal(t, dir), Spec: x, MemoryBytes: 64 << 20})
		require.NoError(t, err)
		require.Len(t, found, 40)
	}
}
