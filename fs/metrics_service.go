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
		labelled("lsiofs_remote_requests_total", "Responses of the bucket or web server, by status; none: no response.", "status", func(s *remote.Stats) map[string]uint64 { return s.Requests }),
		labelled("lsiofs_remote_retries_total", "Retried requests, by reason.", "reason", func(s *remote.Stats) map[string]uint64 { return s.Retries }),
		of(counter, "lsiofs_remote_bytes_total", "Bytes of responses.", func(s *remote.Stats) float64 { return float64(s.Bytes) }),
		of(counter, "lsiofs_remote_throttled_total", "Responses that asked for fewer requests.", func(s *remote.Stats) float64 { return float64(s.Throttled) }),
		of(counter, "lsiofs_remote_hedges_total", "Hedges: second requests for a slow first one.", func(s *remote.Stats) float64 { return float64(s.Hedges) }),
		of(counter, "lsiofs_remote_hedges_won_total", "Hedges whose response came first.", func(s *remote.Stats) float64 { return float64(s.HedgesWon) }),
		of(counter, "lsiofs_remote_price_dollars_total", "Cost of the requests at list price.", func(s *remote.Stats) float64 { return s.PriceDollars }),
		of(gauge, "lsiofs_remote_slots", "Limit of requests in flight.", func(s *remote.Stats) float64 { return float64(s.Slots) }),
		of(gauge, "lsiofs_remote_slots_in_use", "Requests in flight.", func(s *remote.Stats) float64 { return float64(s.InUse) }),
		of(gauge, "lsiofs_remote_waiting_reads", "Reads waiting for a slot.", func(s *remote.Stats) float64 { return float64(s.Waiting) }),
		of(gauge, "lsiofs_remote_retrying_reads", "Reads waiting to be retried.", func(s *remote.Stats) float64 { return float64(s.InRetry) }),
		{
			gauge, "lsiofs_remote_first_byte_seconds", "Recent time to first byte of responses.", "quantile",
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
		of(gauge, "lsiofs_cache_on", "1 while the disk cache stores what is read; 0 while it is full or off.", func(s *diskcache.Stats) float64 {
			if s.State == "on" {
				return 1
			}
			return 0
		}),
		of(gauge, "lsiofs_cache_bytes", "Size of the disk cache's directory, of all mounts.", func(s *diskcache.Stats) float64 { return float64(s.Bytes) }),
		of(gauge, "lsiofs_cache_bound_bytes", "Limit of that size.", func(s *diskcache.Stats) float64 { return float64(s.Bound) }),
		of(gauge, "lsiofs_cache_fill_ratio", "Progress of filling the cache, 0 to 1.", func(s *diskcache.Stats) float64 { return s.Fill }),
		of(counter, "lsiofs_cache_hit_pages_total", "Pages read from the cache.", func(s *diskcache.Stats) float64 { return float64(s.Hits) }),
		of(counter, "lsiofs_cache_missed_pages_total", "Pages that were not in the cache.", func(s *diskcache.Stats) float64 { return float64(s.Misses) }),
		of(counter, "lsiofs_cache_bad_pages_total", "Pages of the cache that were corrupt.", func(s *diskcache.Stats) float64 { return float64(s.BadPages) }),
		of(counter, "lsiofs_cache_written_pages_total", "Pages written to the cache.", func(s *diskcache.Stats) float64 { return float64(s.Written) }),
	}
}
