package listing

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// arrayV3 returns an array document with some members replaced.
func arrayV3(members map[string]string) string {
	all := map[string]string{
		"zarr_format": "3", "node_type": `"array"`, "shape": "[6, 4, 4]", "data_type": `"uint16"`, "fill_value": "0",
		"chunk_grid": `{"name": "regular", "configuration": {"chunk_shape": [2, 2, 2]}}`, "chunk_key_encoding": `"default"`,
		"codecs": `[{"name": "bytes", "configuration": {"endian": "little"}}]`, "dimension_names": `["t", "y", "x"]`,
	}
	for name, value := range members {
		all[name] = value
	}
	var texts []string
	for name, value := range all {
		texts = append(texts, fmt.Sprintf("%q: %s", name, value))
	}
	return "{" + strings.Join(texts, ",\n") + "}"
}

// many returns a list of n equal items.
func many(item string, n int) string { return "[" + item + strings.Repeat(","+item, n-1) + "]" }

// allocated returns how many bytes do allocates, including those that are freed again.
func allocated(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// Documents that are bombs are refused with a short message, in bounded time, and with memory of at
// most a few times their size.
func TestDecompressionAndNestingBombs(t *testing.T) {
	huge := "[281474976710655, 281474976710655, 281474976710655]"
	for name, c := range map[string]struct {
		document string
		want     string
	}{
		"nested":                      {strings.Repeat("[", 1<<20), "nested more than 64 deep"},
		"nested in a member":          {arrayV3(map[string]string{"attributes": strings.Repeat(`{"a":`, 1<<16) + "1" + strings.Repeat("}", 1<<16)}), "nested more than 64 deep"},
		"large":                       {strings.Repeat(" ", zarr.MaxDocumentBytes+1), "has 16777217 bytes"},
		"many dimensions":             {arrayV3(map[string]string{"shape": many("1", 1<<18)}), "shape: has more than 32 items"},
		"many edges":                  {arrayV3(map[string]string{"chunk_grid": `{"name": "regular", "configuration": {"chunk_shape": ` + many("1", 1<<18) + `}}`}), "chunk_shape: has more than 32 items"},
		"many codecs":                 {arrayV3(map[string]string{"codecs": many(`"bytes"`, 1<<18)}), "codecs: has more than 16 items"},
		"many names":                  {arrayV3(map[string]string{"dimension_names": many(`"x"`, 1<<18)}), "dimension_names: has more than 32 items"},
		"many members":                {"{" + strings.Repeat(`"a":1,`, 1<<20) + `"b":1}`, `has "a" twice`},
		"more members than any has":   {members(1 << 17), "has more than 4096 members"},
		"unknown members":             {members(1 << 11), "is unknown, and must be understood"},
		"members that are twice":      {arrayV3(map[string]string{"attributes": "{}"})[:1] + `"shape": [1], "shape": [2]}`, `has "shape" twice`},
		"a long number":               {arrayV3(map[string]string{"shape": "[" + strings.Repeat("9", 1<<20) + ", 1, 1]"}), "shape: item 0 must be a whole number"},
		"a number beyond all":         {arrayV3(map[string]string{"fill_value": "1e999999999"}), "fill_value"},
		"a long fill value":           {arrayV3(map[string]string{"fill_value": `"0x` + strings.Repeat("f", 1<<20) + `"`}), "fill_value"},
		"a long name":                 {arrayV3(map[string]string{"dimension_names": `["t", "y", "` + strings.Repeat("x", 1<<20) + `"]`}), "dimension_names[2]: is a name of 1048576 bytes"},
		"a long type":                 {arrayV3(map[string]string{"data_type": `"` + strings.Repeat("x", 1<<20) + `"`}), "data_type"},
		"an endless number of chunks": {arrayV3(map[string]string{"shape": huge, "chunk_grid": `{"name": "regular", "configuration": {"chunk_shape": [1, 1, 1]}}`}), "the array has more than"},
		"endless chunks":              {arrayV3(map[string]string{"shape": huge, "chunk_grid": `{"name": "regular", "configuration": {"chunk_shape": ` + huge + `}}`}), "a chunk has more than"},
		"a type of endless bytes":     {arrayV3(map[string]string{"data_type": `"r8000000000000"`}), "raw bits come in"},
		"codecs that compress":        {arrayV3(map[string]string{"codecs": `["bytes"` + strings.Repeat(`, "gzip"`, 15) + "]", "data_type": `"uint8"`}), "15 codecs compress"},
		"bytes that are no text":      {arrayV3(map[string]string{"data_type": "\"\xff\xfe\""}), "data_type"},
		"a control character":         {arrayV3(map[string]string{"data_type": "\"\x01\""}), "is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "x.zarr/zarr.json"), c.document)
			under := openLocal(t, dir)
			var text string
			bytes := allocated(func() { text = refused(t, under, crops) })
			require.Contains(t, text, "x.zarr/zarr.json")
			require.Contains(t, text, c.want)
			require.Less(t, len(text), 4000)
			// With the race detector a sync.Pool drops a quarter of what is put into it, such as
			// fmt's buffers.
			require.Less(t, bytes, int64(2<<20+40*min(len(c.document), zarr.MaxDocumentBytes)))
		})
	}
}

// members returns an object with n members.
func members(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	return `{"zarr_format": 3, "node_type": "array"` + b.String() + "}"
}

// Reading an empty document of the maximal length stops at the first error.
func TestEmptyDocumentOfMaximumSize(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.zarr/zarr.json"), "{")
	require.NoError(t, os.Truncate(filepath.Join(dir, "x.zarr/zarr.json"), zarr.MaxDocumentBytes))
	require.Contains(t, refused(t, openLocal(t, dir), crops), "x.zarr/zarr.json: is not JSON")
}
