package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// zarrArray makes a hierarchy with the array data, whose dimensions are time, y and x.
func zarrArray(t *testing.T, flags ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sat.zarr")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "zarr.json"), []byte(`{"zarr_format": 3, "node_type": "group"}`), 0o600))
	makeAt(t, filepath.Join(dir, "data"), append([]string{"zarr", "--shape", "20,50,70", "--chunk", "8,16,16", "--shard", "8,16,16", "--seed", "9"}, flags...)...)
	return dir
}

// The commands that people are likely to try first are answered with what to type next.
func TestFirstCommandsOnArraySuggestFlags(t *testing.T) {
	dir := zarrArray(t)
	index := t.TempDir()
	for flags, want := range map[string]string{
		"":                                 "sat.zarr holds Zarr arrays: choose which crops of them are records, for example --format zarr --crop time=16,y=32,x=32 (lsiofs help zarr)",
		"--format zarr":                    "--format zarr needs --crop: how many elements of each dimension a record has, as --crop time=16,y=32,x=32",
		"--format zarr --stride time=4":    "--format zarr needs --crop: how many elements of each dimension a record has, as --crop time=16,y=32,x=32",
		"--format zarr --crop tiem=4":      "the hierarchy has no array with all dimensions of --crop; it has\nlsiofs:   data: time=20, y=50, x=70 <i2, in chunks of [8 16 16]",
		"--format zarr --array x --crop 4": "the hierarchy has no array x; it has\nlsiofs:   data: time=20",
		"--format zarr --array data --crop time=4 --select time=3": "--select time names single places, which are in every crop: leave time out of --crop, --stride, --step and --wrap; or select a region, as --select time=3:4",
		"--format zarr --select time=0:4,y":                        `--select: "time=0:4,y" selects nothing`,
	} {
		r := lsiofs(t, append([]string{"inspect", dir, "--index-dir", index}, strings.Fields(flags)...)...)
		require.NotZero(t, r.code, flags)
		require.Contains(t, r.stderr, want, flags)
	}
	r := lsiofs(t, "inspect", filepath.Join(dir, "data"), "--index-dir", index, "--format", "zarr", "--crop", "time=4", "--array", "data")
	require.Contains(t, r.stderr, "the hierarchy has no array data; it is an array itself, which needs no --array: it has\nlsiofs:   .: time=20")
}

// Regions selected in every dimension make a crop without --crop.
func TestSelectedRegionIsACrop(t *testing.T) {
	dir, index := zarrArray(t), t.TempDir()
	one := []string{"cat", dir, "--index-dir", index, "--format", "zarr"}
	selected := ok(t, append(one, "--select", "time=2:6,y=8:24,x=3,9,40")...).stdout
	require.Contains(t, selected, "'shape': (1, 4, 16, 3), }")
	require.Equal(t, selected, ok(t, append(one, "--select", "time=2:6", "--select", "y=8:24", "--select", "x=3,9,40")...).stdout)
	require.Equal(t, selected, ok(t, append(one, "--crop", "time=4,y=16", "--select", "time=2:6", "--select", "y=8:24", "--select", "x=3,9,40")...).stdout)
}

// A checkpoint for other crops is refused with the names of the flags that differ.
func TestRefusalOfCheckpointOfOtherCropsNamesFlags(t *testing.T) {
	dir, index := zarrArray(t), t.TempDir()
	crops := []string{dir, "--index-dir", index, "--format", "zarr", "--crop", "time=4,y=16,x=16"}
	var s indexSummary
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"index", "--json"}, crops...)...).stdout), &s))
	o := spec.ZarrOrder(spec.Default().Order)
	file := filepath.Join(t.TempDir(), "c.json")
	state := checkpoint.State{Dataset: s.Fingerprint, Order: o, Done: []order.Done{{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{3}}}}
	require.NoError(t, os.WriteFile(file, state.Marshal(s.Records), 0o600))
	r := lsiofs(t, append([]string{"cat", "--resume", file, "--stride", "time=2,y=16,x=16", "--jitter"}, crops...)...)
	require.Equal(t, exit.Checkpoint, r.code, r.stderr)
	require.Contains(t, r.stderr, "it is from another dataset: ")
	require.Contains(t, r.stderr, "--stride is 2,16,16, and was 4,16,16; --jitter is true, and was false")
	require.NotContains(t, r.stderr, "{\"a\":[", "and not by the text that the fingerprint is of")
	ok(t, append([]string{"cat", "--resume", file}, crops...)...)
}

// Damage is reported once, with the object, the chunk, the codec and what is wrong.
func TestVerifyNamesDamagedArrayChunkOnce(t *testing.T) {
	dir := zarrArray(t, "--lz4")
	object := filepath.Join(dir, "data", "c", "1", "2", "3")
	b, err := os.ReadFile(object)
	require.NoError(t, err)
	b[0] = 9
	require.NoError(t, os.WriteFile(object, b, 0o600))
	crops := []string{dir, "--index-dir", t.TempDir(), "--format", "zarr", "--crop", "time=4,y=16,x=16"}
	r := lsiofs(t, append([]string{"verify"}, crops...)...)
	require.EqualValues(t, exit.Verify, r.code)
	require.Contains(t, r.stdout, "sat.zarr: data/c/1/2/3: chunk (1,2,3) at [0, ")
	require.Contains(t, r.stdout, "): blosc: version 9: this is not a buffer of blosc\n")
	require.NotContains(t, r.stdout, "offset")
}
