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
			gauge, "lsiofs_growing_epoch", "The latest epoch of the run that is taken.", "",
			func(s *snapshot.Status, out func(float64, string)) {
				if s.Epoch != nil {
					out(float64(*s.Epoch), "")
				}
			},
		},
		of(gauge, "lsiofs_growing_new_records", "Records that the next epoch would have and the latest has not.", func(s *snapshot.Status) float64 { return float64(s.NewRecords) }),
		of(gauge, "lsiofs_growing_new_units", "Units that the next epoch would have and the latest has not.", func(s *snapshot.Status) float64 { return float64(s.NewUnits) }),
		of(gauge, "lsiofs_growing_settling_files", "Files that may be being written.", func(s *snapshot.Status) float64 { return float64(s.Settling) }),
		of(gauge, "lsiofs_growing_waiting_shards", "Files that are not whole, or of another kind.", func(s *snapshot.Status) float64 { return float64(s.WaitingShards) }),
		of(counter, "lsiofs_growing_watch_overflows_total", "Times that the kernel lost reports of changes.", func(s *snapshot.Status) float64 { return float64(s.Overflows) }),
		of(gauge, "lsiofs_growing_scan_seconds", "How long the last look at the directories took.", func(s *snapshot.Status) float64 { return s.LastScanSeconds }),
	}
}
