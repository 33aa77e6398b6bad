package pipeline

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// Each time step of the test cubes has 40 by 30 elements.
const cubeY, cubeX = 40, 30

// elementAt is the value of an element of a cube: no two within a cube are equal.
func elementAt(cube int, t, y, x int64) int32 {
	return int32((t*cubeY+y)*cubeX+x)*3 + int32(cube)
}

// writeCube writes a cube: the array data, and coordinates of time and x. The first chunk is
// absent, and consists of -1.
func writeCube(t testing.TB, dir string, cube int, times int64) {
	t.Helper()
	data := encode.Array{
		Shape: []int64{times, cubeY, cubeX}, Object: []int64{8, 32, 32}, Chunk: []int64{4, 16, 16}, Dims: []string{"time", "y", "x"},
		DataType: "int32", ItemBytes: 4, Fill: -1, Codec: encode.BloscLZ4, Attributes: map[string]any{"units": "K", "scale_factor": 0.1},
	}
	require.NoError(t, data.Write(filepath.Join(dir, "data"), func(place []int64, b []byte) bool {
		for i := range int64(4 * 16 * 16) {
			at := elementAt(cube, place[0]*4+i/256, place[1]*16+i/16%16, place[2]*16+i%16)
			binary.LittleEndian.PutUint32(b[4*i:], uint32(at))
		}
		return place[0]+place[1]+place[2] > 0
	}))
	for dim, n := range map[string]int64{"time": times, "x": cubeX} {
		line := encode.Array{Shape: []int64{n}, Object: []int64{7}, Chunk: []int64{7}, Dims: []string{dim}, DataType: "float64", ItemBytes: 8, Codec: encode.Zstd, Attributes: map[string]any{"axis": dim}}
		require.NoError(t, line.Write(filepath.Join(dir, dim), func(place []int64, b []byte) bool {
			for i := range int64(7) {
				binary.LittleEndian.PutUint64(b[8*i:], uint64(1000*int64(cube)+place[0]*7+i))
			}
			return true
		}))
	}
	writeGroup(t, dir)
}

func writeGroup(t testing.TB, dir string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "zarr.json"), []byte(`{"zarr_format": 3, "node_type": "group"}`), 0o600))
}

// cropSpec cuts crops of 6×10×12 elements, with strides of 4×8×8.
func cropSpec(t testing.TB, dataset string) spec.Spec {
	s := testSpec(t, dataset)
	s.Format.Name = "zarr"
	s.Format.Zarr = spec.Zarr{
		Fields: []spec.Array{{Pattern: "data"}}, Jitter: true,
		Crop:   []spec.DimValue{{Dim: "time", Value: 6}, {Dim: "y", Value: 10}, {Dim: "x", Value: 12}},
		Stride: []spec.DimValue{{Dim: "time", Value: 4}, {Dim: "y", Value: 8}, {Dim: "x", Value: 8}},
	}
	return s
}

// rowsOf strips the header of an npy file, and checks that it is one of n rows.
func rowsOf(t testing.TB, file []byte, descr, tail string, n uint64) []byte {
	t.Helper()
	head := int(binary.LittleEndian.Uint16(file[8:])) + 10
	require.Contains(t, string(file[10:head]), fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d%s), }", descr, n, tail))
	return file[head:]
}

// In each epoch, each record is the crop of the cube and at the place given in the file next to it,
// and each crop comes once.
func TestEachCropMatchesItsFile(t *testing.T) {
	dir := t.TempDir()
	times := map[string]int64{"a.zarr": 20, "b.zarr": 33}
	writeCube(t, filepath.Join(dir, "a.zarr"), 0, times["a.zarr"])
	writeCube(t, filepath.Join(dir, "b.zarr"), 1, times["b.zarr"])
	s := cropSpec(t, dir)
	d := open(t, s)
	require.True(t, d.Crops())
	require.Equal(t, []string{"a.zarr", "b.zarr"}, d.Cubes())
	want := uint64(4*4*3 + 7*4*3) // positions of both cubes
	require.Equal(t, want, d.Records())
	moved := map[string]bool{}
	for epoch := range uint64(3) {
		set, err := d.Set(context.Background(), epoch, nil, s.Deal)
		require.NoError(t, err)
		seen := map[string]bool{}
		for w := range s.Deal.Workers {
			n := set.View().Count(w)
			data := rowsOf(t, readFile(t, set, w, stream.Data, 1<<20), "<i4", ", 6, 10, 12", n)
			crops := rowsOf(t, readFile(t, set, w, stream.Crops, 1000), "<i8", ", 5", n)
			for k := range n {
				var at [5]int64
				for i := range at {
					at[i] = int64(binary.LittleEndian.Uint64(crops[40*k+8*uint64(i):]))
				}
				seen[fmt.Sprint(at[:2])] = true
				moved[fmt.Sprint(at)] = true
				for i := range int64(6 * 10 * 12) {
					time, y, x := at[2]+i/120, at[3]+i/12%10, at[4]+i%12
					value := elementAt(int(at[0]), time, y, x)
					if time < 4 && y < 16 && x < 16 {
						value = -1
					}
					require.Equal(t, value, int32(binary.LittleEndian.Uint32(data[(int64(k)*720+i)*4:])), "epoch %d, crop %v, element %d", epoch, at, i)
				}
			}
		}
		require.EqualValues(t, want, len(seen), "each row of each cube comes once")
	}
	require.Greater(t, len(moved), int(2*want), "crops are elsewhere in other epochs")
}

// dataset.json has the place of each field in a record, and the attributes of the arrays.
func TestDescribeShowsHowCropsAreCut(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, dir, 0, 20)
	d := open(t, cropSpec(t, dir))
	text, err := d.Describe()
	require.NoError(t, err)
	var got struct {
		Zarr json.RawMessage `json:"zarr"`
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.JSONEq(t, fmt.Sprintf(`{
		"dims": ["time", "y", "x"], "crop": [6, 10, 12], "stride": [4, 8, 8], "step": [1, 1, 1], "jitter": true, "edge": "drop",
		"cubes": [{"path": %q, "shape": [20, 40, 30], "region": [[0, 20], [0, 40], [0, 30]], "grid": [4, 4, 3], "records": 48}],
		"fields": [{"name": "data", "path": "data", "dtype": "<i4", "dims": ["time", "y", "x"], "shape": [6, 10, 12], "offset": 0, "bytes": 2880,
			"brick": [4, 16, 16], "object": [8, 32, 32], "codecs": ["sharding", "blosc"], "fill_value": -1,
			"attributes": {"units": "K", "scale_factor": 0.1}}],
		"coords": {
			"time": {"file": "coords/time.npy", "dtype": "<f8", "attributes": {"axis": "time"}},
			"x": {"file": "coords/x.npy", "dtype": "<f8", "attributes": {"axis": "x"}}}
	}`, filepath.Base(dir)), string(got.Zarr))
}

// Coordinates are whole arrays, and each cube has its own.
func TestCoordinatesBelongToTheirGrid(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, filepath.Join(dir, "deep/a.zarr"), 0, 20)
	writeCube(t, filepath.Join(dir, "deep/b.zarr"), 1, 33)
	d := open(t, cropSpec(t, dir))
	for cube, times := range []uint64{20, 33} {
		list, err := d.Coordinates(t.Context(), cube)
		require.NoError(t, err)
		require.Len(t, list, 2, "there are none of y")
		for i, dim := range []string{"time", "x"} {
			require.Equal(t, dim, list[i].Dim)
			file, err := d.Coordinate(t.Context(), cube, dim)
			require.NoError(t, err)
			require.EqualValues(t, list[i].SizeBytes, len(file))
			n := []uint64{times, cubeX}[i]
			rows := rowsOf(t, file, "<f8", ",", n)
			require.Len(t, rows, int(8*n))
			for k := range n {
				require.EqualValues(t, 1000*uint64(cube)+k, binary.LittleEndian.Uint64(rows[8*k:]))
			}
		}
	}
	_, err := d.Coordinate(t.Context(), 0, "y")
	require.ErrorContains(t, err, "deep/a.zarr has no coordinates of y")
}

// A coordinate that has been rewritten since is an error, not half of one.
func TestChangedCoordinateIsDetected(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, dir, 0, 20)
	d := open(t, cropSpec(t, dir))
	_, err := d.Coordinates(t.Context(), 0)
	require.NoError(t, err)
	other := encode.Array{Shape: []int64{21}, Object: []int64{7}, Chunk: []int64{7}, Dims: []string{"time"}, DataType: "float64", ItemBytes: 8, Codec: encode.Zstd}
	require.NoError(t, other.Write(filepath.Join(dir, "time"), func([]int64, []byte) bool { return true }))
	_, err = d.Coordinate(t.Context(), 0, "time")
	require.ErrorIs(t, err, storage.ErrChanged)
}

// A split of overlapping crops gives a warning.
func TestWarnsAboutSplitOfOverlappingCrops(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, dir, 0, 20)
	half, err := spec.ParsePart("0..0.5")
	require.NoError(t, err)
	for _, c := range []struct {
		change func(*spec.Spec)
		warns  bool
	}{
		{func(*spec.Spec) {}, false},
		{func(s *spec.Spec) { s.Order.Split.Part = half }, true},
		{func(s *spec.Spec) { s.Order.Split.Part, s.Format.Zarr.Jitter = half, false }, true},
		{func(s *spec.Spec) { s.Order.Split.Part, s.Format.Zarr.Jitter, s.Format.Zarr.Stride = half, false, nil }, false},
	} {
		s := cropSpec(t, dir)
		c.change(&s)
		d := open(t, s)
		g, release := d.acquire()
		require.Equal(t, c.warns, len(g.cropWarnings()) > 0, "%+v", s.Format.Zarr)
		release()
	}
}

// warningsOf are the warnings for a dataset of crops.
func warningsOf(t *testing.T, s spec.Spec) []string {
	t.Helper()
	d := open(t, s)
	g, release := d.acquire()
	defer release()
	return g.cropWarnings()
}

// Stores that are read completely give no warnings, however many they are. What is left out of one
// of them, or next to them, is named in a warning; beyond the bound it is only counted.
func TestWarningsOfManyStores(t *testing.T) {
	dir := t.TempDir()
	for i := range 7 {
		writeCube(t, filepath.Join(dir, fmt.Sprintf("%d.zarr", i)), i, 20)
	}
	s := cropSpec(t, dir)
	require.Empty(t, warningsOf(t, s))

	s.Format.Zarr.Missing = spec.MissingSkip // each lacks its first object
	list := warningsOf(t, s)
	require.Len(t, list, mostLeftOut+1)
	require.Contains(t, list[4], "4.zarr: ")
	require.Equal(t, "crops are left out of 2 further stores: dataset.json has all figures", list[5])

	whole := cropSpec(t, dir)
	for i := range 7 {
		at := filepath.Join(dir, fmt.Sprintf("other-%d.zarr", i))
		writeCube(t, at, i, 20)
		require.NoError(t, os.Rename(filepath.Join(at, "data"), filepath.Join(at, "renamed")))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o600))
	list = warningsOf(t, whole)
	require.Len(t, list, mostLeftOut+1)
	require.Equal(t, "other-0.zarr is left out: it has no array data", list[0])
	require.Contains(t, list[5], "2 more are left out")
	require.Equal(t, 8, open(t, whole).Catalog().PassedOver(), "and they are counted as what is left out")
}

// A store that a pattern names literally must have the arrays: otherwise the dataset is refused,
// with what is missing. One that only a wildcard matches is left out.
func TestNamedStoreMustBeAStore(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, filepath.Join(dir, "2018.zarr"), 0, 20)
	writeCube(t, filepath.Join(dir, "2019.zarr"), 1, 20)
	require.NoError(t, os.Rename(filepath.Join(dir, "2019.zarr/data"), filepath.Join(dir, "2019.zarr/renamed")))
	writeCube(t, filepath.Join(dir, "short.zarr"), 2, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "2021.zip"), nil, 0o600))
	for pattern, says := range map[string]string{
		"{2018.zarr,2021.zip}": "2021.zip is named by the pattern, and crops can't be cut from it: it is a zip file, and these are read alone",
		"{2018,2019}.zarr":     "2019.zarr is named by the pattern, and crops can't be cut from it: it has no array data",
		"{2018..2019}.zarr":    "2019.zarr is named by the pattern, and crops can't be cut from it: it has no array data",
		"20{18,20}.zarr":       "2020.zarr is named by the pattern, and crops can't be cut from it: nothing there has that name",
		"{2018,short}.zarr":    "short.zarr is named by the pattern, and crops can't be cut from it: ",
		"{2018,20*}.zarr":      "",
		"2018.zarr":            "",
		"{2018,2018}.zarr":     "",
	} {
		s := cropSpec(t, filepath.Join(dir, pattern))
		if says == "" {
			require.EqualValues(t, 1, open(t, s).Catalog().Shards(), pattern)
			continue
		}
		_, err := Open(t.Context(), s, Options{})
		require.ErrorContains(t, err, says, pattern)
	}
	s := cropSpec(t, filepath.Join(dir, "{2018,2019}.zarr"))
	s.Exclude = []string{"2019.zarr"}
	require.EqualValues(t, 1, open(t, s).Catalog().Shards(), "what is excluded need not be one")
	for pattern, exclude := range map[string]string{"*.zarr": "20*", "": "*.zarr"} {
		s := cropSpec(t, filepath.Join(dir, pattern))
		s.Exclude = []string{exclude, "short.zarr"}
		_, err := Open(t.Context(), s, Options{})
		require.ErrorContains(t, err, "there is no Zarr store", "%q", pattern)
		require.ErrorContains(t, err, " is left out (--exclude ", "%q", pattern)
	}
}

// A store, a file that describes one, or an array that appears under two names is an error that
// names both: its crops would come twice.
func TestStoreNamedTwiceIsRefused(t *testing.T) {
	link := func(t *testing.T, to, name string) { require.NoError(t, os.Symlink(to, name)) }
	for name, c := range map[string]struct {
		dataset string
		make    func(t *testing.T, dir string)
		says    string // "" if they are two stores
	}{
		"a link to a directory": {"", func(t *testing.T, dir string) { link(t, "a.zarr", filepath.Join(dir, "latest.zarr")) }, "a.zarr and latest.zarr"},
		"named by a pattern":    {"{a,latest}.zarr", func(t *testing.T, dir string) { link(t, "a.zarr", filepath.Join(dir, "latest.zarr")) }, "a.zarr and latest.zarr"},
		"a group whose array is a link": {"*.zarr", func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(filepath.Join(dir, "view.zarr"), 0o700))
			writeGroup(t, filepath.Join(dir, "view.zarr"))
			link(t, "../a.zarr/data", filepath.Join(dir, "view.zarr/data"))
		}, "a.zarr and view.zarr"},
		"a copy": {"", func(t *testing.T, dir string) {
			require.NoError(t, os.CopyFS(filepath.Join(dir, "b.zarr"), os.DirFS(filepath.Join(dir, "a.zarr"))))
		}, ""},
		"a hard link to a zip file": {"*.zip", func(t *testing.T, dir string) {
			require.NoError(t, os.Link(filepath.Join(dir, "z.zip"), filepath.Join(dir, "0.zip")))
		}, "0.zip and z.zip"},
		"a link to a zip file":       {"*.zip", func(t *testing.T, dir string) { link(t, "z.zip", filepath.Join(dir, "0.zip")) }, "0.zip and z.zip"},
		"a link to a reference file": {"*.json", func(t *testing.T, dir string) { link(t, "r.json", filepath.Join(dir, "s.json")) }, "r.json and s.json"},
		"a copy of a reference file": {"*.json", func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, "r.json"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "s.json"), b, 0o600))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeCube(t, filepath.Join(dir, "a.zarr"), 0, 20)
			writeDescribed(t, dir, "a.zarr")
			c.make(t, dir)
			s := cropSpec(t, filepath.Join(dir, c.dataset))
			if c.says == "" {
				require.EqualValues(t, 2, open(t, s).Catalog().Shards())
				return
			}
			_, err := Open(t.Context(), s, Options{})
			require.ErrorContains(t, err, "holds the same arrays under two names: "+c.says+": remove one of them")
		})
	}
}
