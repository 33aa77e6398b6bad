package inspect

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// An inspection of crops lists the arrays, what is decoded for a crop in each order, and the
// dimensions along which chunks are far longer than crops.
func TestInspectReportOfCrops(t *testing.T) {
	f := &pipeline.CropsForecast{
		Records: 16384, RecordBytes: 24 * 96 * 130 * 2, MemoryBytes: 2 << 30, ChunksWanted: 3.25, WantedBytes: 13 << 20,
		Fields: []pipeline.CropsField{{
			Name: "sat", Path: "a/sat", Descr: "'<f4'", ComputedOf: "<i2 × 0.01 + 273.15, NaN for -32768", Dims: []string{"time", "latitude", "longitude"}, Shape: []int64{70000, 721, 1440}, Crop: []int64{24, 96, 130}, Step: []int64{1, 1, 1},
			Chunk: []int64{16, 48, 1440}, Object: []int64{160, 96, 1440}, Codecs: []string{"sharding", "blosc"}, ChunkBytes: 16 * 48 * 1440 * 2, Objects: 3504, Stored: 3500, IgnoredFiles: 1,
			DecodedAlong: []float64{1.9, 1.4, 11.07},
		}, {
			Name: "flat", Path: "flat", Descr: "'<f4'", Dims: []string{"", ""}, Shape: []int64{721, 1440}, Crop: []int64{96, 130}, Step: []int64{1, 1},
			Chunk: []int64{700, 200}, Object: []int64{700, 200}, Codecs: []string{}, ChunkBytes: 4 * 700 * 200, Objects: 16, Stored: 16,
			DecodedAlong: []float64{8.5, 2},
		}},
		Orders: []pipeline.CropsOrder{
			{Shuffle: spec.ShuffleBlock, InUse: true, Chunks: 0.05, Bytes: 1 << 20, OnceBytes: 1 << 30},
			{Shuffle: spec.ShuffleFull, Chunks: 3.2, Bytes: 13 << 20, OnceBytes: 400 << 30},
			{Shuffle: spec.ShuffleNone, Chunks: 0.04, Bytes: 1 << 20},
		},
	}
	i := Report{
		Root: "/data/sat.zarr", Format: "zarr", Kind: `{"a":[0,0,0]}`, Fingerprint: "abcd", Shards: 2, Damaged: []string{}, Records: 1_234_567, StreamBytes: 700 << 30,
		Chunks: 19291, Shuffle: spec.ShuffleBlock, Workers: 1, Crops: newCrops(f, 4<<30),
	}
	i.ChunkRecords.Add(64)
	i.ChunkRecords.Add(7)
	var out, err bytes.Buffer
	require.NoError(t, i.Print(terminal.New(&out, &err)))
	require.Empty(t, err.String())
	goldentest.Equal(t, "inspect-crops.txt", out.String())

	b, e := json.Marshal(i.Crops)
	require.NoError(t, e)
	var got Crops
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, []string{
		"sat: longitude is not chunked: a crop decodes 11.1 times its own size",
		"flat: chunks span 700 elements of dimension 0, crops only 96: a crop decodes 8.5 times its own size",
	}, got.Warnings)
	require.Equal(t, int64(2<<30), got.Orders[0].OnceMemory)
	f.MemoryBytes = 1 << 20 // of 4 GiB: descriptions take nearly all
	require.Equal(t, int64(6<<30-2<<20), newCrops(f, 4<<30).Orders[0].OnceMemory)
	require.Zero(t, newCrops(f, 4<<30).Orders[2].OnceMemory)
	itself := CropsArray{Dims: []string{"x"}, Shape: []int64{100}, Chunk: []int64{100}, Crop: []int64{10}, Decoded: []float64{10}}
	require.Equal(t, []string{"x is not chunked: a crop decodes 10 times its own size"}, itself.warnings(), "an array that is the dataset has no name")
}
