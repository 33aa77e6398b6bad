package fs

import (
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
)

// growingMetrics are the metrics for growing datasets.
func growingMetrics() []metric[snapshot.Status] {
	counter, gauge := counterKind, gaugeKind
	of := metricOf[snapshot.Status]
	return []metric[snapshot.Status]{
		{
			gauge, "lsiofs_growing_epoch", "Latest epoch of the run.", "",
			func(s *snapshot.Status, out func(float64, string)) {
				if s.Epoch != nil {
					out(float64(*s.Epoch), "")
				}
			},
		},
		of(gauge, "lsiofs_growing_new_records", "Records of the next epoch that are not in the latest.", func(s *snapshot.Status) float64 { return float64(s.NewRecords) }),
		of(gauge, "lsiofs_growing_new_units", "Units of the next epoch that are not in the latest.", func(s *snapshot.Status) float64 { return float64(s.NewUnits) }),
		of(gauge, "lsiofs_growing_settling_files", "Files that may still be being written.", func(s *snapshot.Status) float64 { return float64(s.Settling) }),
		of(gauge, "lsiofs_growing_waiting_shards", "Files that are incomplete, or of another kind.", func(s *snapshot.Status) float64 { return float64(s.WaitingShards) }),
		of(counter, "lsiofs_growing_watch_overflows_total", "Times that the kernel dropped change notifications.", func(s *snapshot.Status) float64 { return float64(s.Overflows) }),
		of(gauge, "lsiofs_growing_scan_seconds", "Duration of the last scan of the directories.", func(s *snapshot.Status) float64 { return s.LastScanSeconds }),
	}
}
