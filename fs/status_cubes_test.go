package fs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
)

func TestStatusShowsDecodingOfArrays(t *testing.T) {
	told := func(r *statusReport) string {
		var b strings.Builder
		r.DescribeCubes(func(label, format string, args ...any) {
			fmt.Fprintf(&b, "%s: %s\n", label, fmt.Sprintf(format, args...))
		})
		return b.String()
	}
	r := &statusReport{}
	require.Empty(t, told(r), "there are no arrays")
	r.Pipeline.Cubes = &crops.Stats{Decoded: 1234, Found: 5678, StoredBytes: 3 << 20, HeldBytes: 2 << 20}
	require.Equal(t, "chunks: 1,234 decoded (3.0 MiB stored), 5,678 times already decoded when needed; 2.0 MiB in memory\n", told(r))
	r.Pipeline.Cubes.Blocks = 17
	require.Contains(t, told(r), "blosc: 17 blocks decoded without the rest of their chunks\n")
}

func TestArrayMetricsExistOnlyForArrays(t *testing.T) {
	s := &sample{view: &view{number: 1}}
	text := func() string { return string(metricsText(s)) }
	require.NotContains(t, text(), "lsiofs_zarr")
	s.Pipeline.Cubes = &crops.Stats{Decoded: 1, Found: 2, StoredBytes: 3, Blocks: 4, HeldBytes: 5}
	got := text()
	for _, line := range []string{
		"lsiofs_zarr_chunks_decoded_total 1", "lsiofs_zarr_chunks_found_total 2", "lsiofs_zarr_stored_bytes_total 3", "lsiofs_zarr_blocks_decoded_total 4", "lsiofs_zarr_held_bytes 5",
	} {
		require.Contains(t, got, line+"\n")
	}
}
