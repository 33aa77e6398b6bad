package fs

import (
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
)

// cubeMetrics are the metrics for crops of Zarr arrays.
func cubeMetrics() []metric[crops.Stats] {
	counter, gauge := counterKind, gaugeKind
	of := metricOf[crops.Stats]
	return []metric[crops.Stats]{
		of(counter, "lsiofs_zarr_chunks_decoded_total", "Chunks of arrays decoded, or read uncompressed.", func(s *crops.Stats) float64 { return float64(s.Decoded) }),
		of(counter, "lsiofs_zarr_chunks_found_total", "Times that a needed chunk was already decoded.", func(s *crops.Stats) float64 { return float64(s.Found) }),
		of(counter, "lsiofs_zarr_stored_bytes_total", "Stored size of the decoded chunks in bytes.", func(s *crops.Stats) float64 { return float64(s.StoredBytes) }),
		of(counter, "lsiofs_zarr_blocks_decoded_total", "Blocks decoded without the rest of their chunk.", func(s *crops.Stats) float64 { return float64(s.Blocks) }),
		of(gauge, "lsiofs_zarr_held_bytes", "Bytes of decoded chunks in memory.", func(s *crops.Stats) float64 { return float64(s.HeldBytes) }),
	}
}
