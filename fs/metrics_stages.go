package fs

import (
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// stageMetrics are counters and gauges for each stage, which is their label.
func stageMetrics() []metric[explain.Snapshot] {
	of := func(kind metricKind, name, help string, value func(s *explain.Snapshot, stage meter.Stage) float64) metric[explain.Snapshot] {
		return metric[explain.Snapshot]{kind, name, help, "stage", func(s *explain.Snapshot, out func(float64, string)) {
			for stage := range meter.Stage(meter.Stages) {
				out(value(s, stage), stage.String())
			}
		}}
	}
	return []metric[explain.Snapshot]{
		of(counterKind, "lsiofs_stage_busy_seconds_total", "Time that a stage was busy, summed over goroutines; for storage: time with any read in flight.",
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Busy[stage]) / 1e9 }),
		of(counterKind, "lsiofs_stage_wait_seconds_total", "Time that readers' requests spent in a stage or waiting for it.",
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Waited(stage)) / 1e9 }),
		of(counterKind, "lsiofs_stage_bytes_total", "Bytes produced by a stage.",
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Bytes[stage]) }),
		of(gaugeKind, "lsiofs_stage_queued", "Items in a stage: reads, shards being decoded, readers' requests.",
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Queued[stage]) }),
	}
}
