package fs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// stageMetric is one counter or gauge of each stage, which is its label.
type stageMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *explain.Snapshot, stage meter.Stage) float64
}

func stageMetrics() []stageMetric {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"stage"}, nil)
	}
	return []stageMetric{
		{
			desc("lsiofs_stage_busy_seconds_total", "Time that a stage was at work, summed over goroutines; of storage, in which any read was under way."),
			prometheus.CounterValue,
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Busy[stage]) / 1e9 },
		}, {
			desc("lsiofs_stage_wait_seconds_total", "Time that requests of readers have spent in a stage, or waited for it."),
			prometheus.CounterValue,
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Waited(stage)) / 1e9 },
		}, {
			desc("lsiofs_stage_bytes_total", "Bytes that came out of a stage."),
			prometheus.CounterValue,
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Bytes[stage]) },
		}, {
			desc("lsiofs_stage_queued", "What is in a stage: reads, shards that are decoded, requests of readers."),
			prometheus.GaugeValue,
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Queued[stage]) },
		},
	}
}

func (m *stageMetric) collect(out chan<- prometheus.Metric, s *explain.Snapshot) {
	for stage := range meter.Stage(meter.Stages) {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s, stage), stage.String())
	}
}
