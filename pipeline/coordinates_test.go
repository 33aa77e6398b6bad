package pipeline

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// An array that is the dataset itself, or that a pattern names, has the coordinates of the group that
// it lies in.
func TestAnArrayByItselfHasTheCoordinatesOfItsGroup(t *testing.T) {
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

// What lies beside an array is no coordinate of it if the directory is no group, or the length another.
func TestAnArrayByItselfHasNoCoordinatesOfSomethingElse(t *testing.T) {
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
	other := encode.Array{Shape: []int64{21}, Object: []int64{7}, Brick: []int64{7}, Dims: []string{"time"}, DataType: "float64", ItemBytes: 8, Codec: encode.Zstd}
	require.NoError(t, other.Write(filepath.Join(dir, "time"), func([]int64, []byte) bool { return true }))
	require.Equal(t, []string{"x"}, dims(dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "zarr.json")))
	require.Empty(t, dims(dir))
}
