package fs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lsiofs/lsiofs/pipeline/storage/cached"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// serviceMetric is one counter or gauge of a dataset at a bucket or web server, or of the
// disk cache before it. Mounts of local datasets don't have them. values calls out with each
// value and its label, which is "" for a metric without one.
type serviceMetric[S any] struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(s *S, out func(value float64, label string))
}

func (m *serviceMetric[S]) collect(out chan<- prometheus.Metric, s *S) {
	m.values(s, func(value float64, label string) {
		var labels []string
		if label != "" {
			labels = []string{label}
		}
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	})
}

func metricOf[S any](kind prometheus.ValueType, name, help string, value func(s *S) float64) serviceMetric[S] {
	return serviceMetric[S]{prometheus.NewDesc(name, help, nil, nil), kind, func(s *S, out func(float64, string)) { out(value(s), "") }}
}

func labelled[S any](name, help, label string, values func(s *S) map[string]uint64) serviceMetric[S] {
	return serviceMetric[S]{prometheus.NewDesc(name, help, []string{label}, nil), prometheus.CounterValue, func(s *S, out func(float64, string)) {
		for of, n := range values(s) {
			out(float64(n), of)
		}
	}}
}

func remoteMetrics() []serviceMetric[remote.Stats] {
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	of := metricOf[remote.Stats]
	return []serviceMetric[remote.Stats]{
		labelled("lsiofs_remote_requests_total", "Answers of the bucket or web server, by status; none: no answer came.", "status", func(s *remote.Stats) map[string]uint64 { return s.Requests }),
		labelled("lsiofs_remote_retries_total", "Requests that were made again, by reason.", "reason", func(s *remote.Stats) map[string]uint64 { return s.Retries }),
		of(counter, "lsiofs_remote_bytes_total", "Bytes of answers.", func(s *remote.Stats) float64 { return float64(s.Bytes) }),
		of(counter, "lsiofs_remote_throttled_total", "Answers that asked for fewer requests.", func(s *remote.Stats) float64 { return float64(s.Throttled) }),
		of(counter, "lsiofs_remote_hedges_total", "Requests that were made beside a slow one.", func(s *remote.Stats) float64 { return float64(s.Hedges) }),
		of(counter, "lsiofs_remote_hedges_won_total", "Of these, those that were answered first.", func(s *remote.Stats) float64 { return float64(s.HedgesWon) }),
		of(counter, "lsiofs_remote_price_dollars_total", "What the requests cost by the price list that lsiofs knows.", func(s *remote.Stats) float64 { return s.PriceDollars }),
		of(gauge, "lsiofs_remote_slots", "Requests that may be under way.", func(s *remote.Stats) float64 { return float64(s.Slots) }),
		of(gauge, "lsiofs_remote_slots_in_use", "Requests that are under way.", func(s *remote.Stats) float64 { return float64(s.InUse) }),
		of(gauge, "lsiofs_remote_waiting_reads", "Reads that wait for a slot.", func(s *remote.Stats) float64 { return float64(s.Waiting) }),
		of(gauge, "lsiofs_remote_retrying_reads", "Reads that wait until they are made again.", func(s *remote.Stats) float64 { return float64(s.InRetry) }),
		{
			prometheus.NewDesc("lsiofs_remote_first_byte_seconds", "Time until the first byte of an answer came, lately.", []string{"quantile"}, nil), gauge,
			func(s *remote.Stats, out func(float64, string)) {
				out(s.FirstByte.P50, "0.5")
				out(s.FirstByte.P95, "0.95")
				out(s.FirstByte.P99, "0.99")
			},
		},
	}
}

func cacheMetrics() []serviceMetric[cached.Stats] {
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	of := metricOf[cached.Stats]
	return []serviceMetric[cached.Stats]{
		of(gauge, "lsiofs_cache_on", "1 while the disk cache takes in what is read; 0 while it is full or off.", func(s *cached.Stats) float64 {
			if s.State == "on" {
				return 1
			}
			return 0
		}),
		of(gauge, "lsiofs_cache_bytes", "Bytes that the directory of the disk cache takes, of all mounts.", func(s *cached.Stats) float64 { return float64(s.Bytes) }),
		of(gauge, "lsiofs_cache_bound_bytes", "Bytes that it may take.", func(s *cached.Stats) float64 { return float64(s.Bound) }),
		of(gauge, "lsiofs_cache_fill_ratio", "How much is there of what the cache is to be filled with, 0 to 1.", func(s *cached.Stats) float64 { return s.Fill }),
		of(counter, "lsiofs_cache_hit_pages_total", "Pages that were read from the cache.", func(s *cached.Stats) float64 { return float64(s.Hits) }),
		of(counter, "lsiofs_cache_missed_pages_total", "Pages that were wanted and not there.", func(s *cached.Stats) float64 { return float64(s.Misses) }),
		of(counter, "lsiofs_cache_bad_pages_total", "Pages that were there and not as they were written.", func(s *cached.Stats) float64 { return float64(s.BadPages) }),
		of(counter, "lsiofs_cache_written_pages_total", "Pages that were written to the cache.", func(s *cached.Stats) float64 { return float64(s.Written) }),
	}
}
