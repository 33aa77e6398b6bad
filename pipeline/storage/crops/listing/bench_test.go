package listing

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// BenchmarkFind finds an array of 100 × 100 × n objects, each a file, with a warm kernel cache. An
// operation is one listing.
func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n*10_000, " objects"), func(b *testing.B) {
			dir := b.TempDir()
			write(b, filepath.Join(dir, "zarr.json"), fmt.Sprintf(`{"zarr_format": 3, "node_type": "array", "shape": [%d, 100, 100], "data_type": "uint8",
"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1, 1]}}, "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}]}`, n))
			for i := range n {
				for j := range 100 {
					at := filepath.Join(dir, fmt.Sprintf("c/%d/%d", i, j))
					require.NoError(b, os.MkdirAll(at, 0o755))
					for k := range 100 {
						f, err := os.Create(fmt.Sprintf("%s/%d", at, k))
						require.NoError(b, err)
						require.NoError(b, f.Close())
					}
				}
			}
			under, z := openLocal(b, dir), spec.Zarr{Crop: []spec.DimValue{{Value: 1}, {Value: 1}, {Value: 1}}}
			var before, after runtime.MemStats
			began := cpuSeconds(b)
			for b.Loop() {
				runtime.ReadMemStats(&before)
				list, err := Find(b.Context(), Config{Under: under, Spec: z, Base: "a"})
				require.NoError(b, err)
				require.EqualValues(b, n*10_000, list[0].Fields[0].Present())
				runtime.ReadMemStats(&after)
			}
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(n*10_000), "mallocs/object")
			b.ReportMetric((cpuSeconds(b)-began)/float64(b.N), "cpu-s/op")
		})
	}
}

// BenchmarkFindPlate finds arrays of one object each, in the wells of a plate.
func BenchmarkFindPlate(b *testing.B) {
	const rows, columns = 10, 1000
	dir := b.TempDir()
	for i := range rows {
		for j := range columns {
			writeV2(b, filepath.Join(dir, fmt.Sprintf("plate.zarr/%d/%d", i, j)), "/", "0/0/0")
		}
	}
	under, began := openLocal(b, dir), cpuSeconds(b)
	for b.Loop() {
		list, err := find(b, under, crops)
		require.NoError(b, err)
		require.Len(b, list, rows*columns)
	}
	b.ReportMetric((cpuSeconds(b)-began)/float64(b.N), "cpu-s/op")
}

// cpuSeconds returns the CPU time of the process, user and kernel: other programs affect it less
// than wall time.
func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
