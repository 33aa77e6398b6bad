package fs

import (
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// remoteMetrics are the metrics for datasets at a bucket or web server.
func remoteMetrics() []metric[remote.Stats] {
	counter, gauge := counterKind, gaugeKind
	of := metricOf[remote.Stats]
	return []metric[remote.Stats]{
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
			gauge, "lsiofs_remote_first_byte_seconds", "Time until the first byte of an answer came, lately.", "quantile",
			func(s *remote.Stats, out func(float64, string)) {
				out(s.FirstByte.P50, "0.5")
				out(s.FirstByte.P95, "0.95")
				out(s.FirstByte.P99, "0.99")
			},
		},
	}
}

// cacheMetrics are the metrics of the disk cache.
func cacheMetrics() []metric[diskcache.Stats] {
	counter, gauge := counterKind, gaugeKind
	of := metricOf[diskcache.Stats]
	return []metric[diskcache.Stats]{
		of(gauge, "lsiofs_cache_on", "1 while the disk cache takes in what is read; 0 while it is full or off.", func(s *diskcache.Stats) float64 {
			if s.State == "on" {
				return 1
			}
			return 0
		}),
		of(gauge, "lsiofs_cache_bytes", "Bytes that the directory of the disk cache takes, of all mounts.", func(s *diskcache.Stats) float64 { return float64(s.Bytes) }),
		of(gauge, "lsiofs_cache_bound_bytes", "Bytes that it may take.", func(s *diskcache.Stats) float64 { return float64(s.Bound) }),
		of(gauge, "lsiofs_cache_fill_ratio", "How much is there of what the cache is to be filled with, 0 to 1.", func(s *diskcache.Stats) float64 { return s.Fill }),
		of(counter, "lsiofs_cache_hit_pages_total", "Pages that were read from the cache.", func(s *diskcache.Stats) float64 { return float64(s.Hits) }),
		of(counter, "lsiofs_cache_missed_pages_total", "Pages that were wanted and not there.", func(s *diskcache.Stats) float64 { return float64(s.Misses) }),
		of(counter, "lsiofs_cache_bad_pages_total", "Pages that were there and not as they were written.", func(s *diskcache.Stats) float64 { return float64(s.BadPages) }),
		of(counter, "lsiofs_cache_written_pages_total", "Pages that were written to the cache.", func(s *diskcache.Stats) float64 { return float64(s.Written) }),
	}
}
