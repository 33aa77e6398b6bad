package pipeline

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// An array that is the dataset itself, or that matches a pattern, has the coordinates of its group.
func TestStandaloneArrayHasCoordinatesOfItsGroup(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, dir, 2, 20)
	for _, dataset := range []string{"data", "dat*"} {
		s := cropSpec(t, filepath.Join(dir, dataset))
		s.Format.Zarr.Fields = nil
		d := open(t, s)
		require.Equal(t, []string{"data"}, d.Cubes())
		list, err := d.Coordinates(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, list, 2, dataset)
		for i, n := range map[string]uint64{"time": 20, "x": cubeX} {
			file, err := d.Coordinate(t.Context(), 0, i)
			require.NoError(t, err)
			rows := rowsOf(t, file, "<f8", ",", n)
			for k := range n {
				require.EqualValues(t, 2000+k, binary.LittleEndian.Uint64(rows[8*k:]))
			}
		}
		text, err := d.Describe()
		require.NoError(t, err)
		require.Contains(t, string(text), `"coords/time.npy"`)
	}
}

// An array next to the dataset is not a coordinate of it if the directory is not a group, or if the
// lengths differ.
func TestStandaloneArrayHasNoUnrelatedCoordinates(t *testing.T) {
	dims := func(dir string) (dims []string) {
		s := cropSpec(t, filepath.Join(dir, "data"))
		s.Format.Zarr.Fields = nil
		d := open(t, s)
		list, err := d.Coordinates(t.Context(), 0)
		require.NoError(t, err)
		for _, c := range list {
			dims = append(dims, c.Dim)
		}
		return dims
	}
	dir := t.TempDir()
	writeCube(t, dir, 0, 20)
	require.Equal(t, []string{"time", "x"}, dims(dir))
	other := encode.Array{Shape: []int64{21}, Object: []int64{7}, Chunk: []int64{7}, Dims: []string{"time"}, DataType: "float64", ItemBytes: 8, Codec: encode.Zstd}
	require.NoError(t, other.Write(filepath.Join(dir, "time"), func([]int64, []byte) bool { return true }))
	require.Equal(t, []string{"x"}, dims(dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "zarr.json")))
	require.Empty(t, dims(dir))
}

// Coordinates that can't be read are left out; the log names each once, with the reason. The others
// are there.
func TestLogNamesOmittedCoordinates(t *testing.T) {
	for name, c := range map[string]struct {
		arrays []string
		change func(document map[string]any)
		reason string
	}{
		"a type that npy does not have": {[]string{"time"}, func(document map[string]any) { document["data_type"] = "string" }, "string"},
		"a codec that is not read": {[]string{"time"}, func(document map[string]any) {
			document["codecs"] = []any{map[string]any{"name": "bytes"}, map[string]any{"name": "huffman"}}
		}, "huffman"},
		"a document that is none": {[]string{"time"}, func(document map[string]any) { document["shape"] = "long" }, "time"},
		"too many elements": {[]string{"time", "data"}, func(document map[string]any) { document["shape"].([]any)[0] = 32 << 20 },
			"array time: 33554432 elements of 8 bytes are more than 67108864 bytes, the most that is read of coordinates"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeCube(t, dir, 2, 20)
			for _, array := range c.arrays {
				at := filepath.Join(dir, array, "zarr.json")
				text, err := os.ReadFile(at)
				require.NoError(t, err)
				var document map[string]any
				require.NoError(t, json.Unmarshal(text, &document))
				c.change(document)
				text, err = json.Marshal(document)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(at, text, 0o644))
			}
			var log bytes.Buffer
			spec := cropSpec(t, dir)
			if name == "too many elements" {
				spec.Format.Zarr.Stride[0].Value = 1 << 20 // some crops of them
			}
			d, err := Open(t.Context(), spec, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			for range 2 {
				list, err := d.Coordinates(t.Context(), 0)
				require.NoError(t, err)
				require.Len(t, list, 1)
				require.Equal(t, "x", list[0].Dim)
			}
			require.Equal(t, 1, strings.Count(log.String(), "a file of coordinates is left out"), log.String())
			require.Contains(t, log.String(), "dimension=time")
			require.Contains(t, log.String(), c.reason)
		})
	}
}
