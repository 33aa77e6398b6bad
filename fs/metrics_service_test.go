package fs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

func TestServiceAndCacheMetricsExistOnlyIfUsed(t *testing.T) {
	s := &sample{view: &view{number: 1}}
	text := func() string { return string(metricsText(s)) }
	require.NotContains(t, text(), "lsiofs_remote")
	require.NotContains(t, text(), "lsiofs_cache")

	s.Pipeline.Remote = &remote.Stats{
		Requests: map[string]uint64{"206": 12, "none": 3}, Retries: map[string]uint64{"throttled": 2}, Bytes: 7, Throttled: 2, Hedges: 5, HedgesWon: 4,
		FirstByte: remote.Latency{P50: 0.5, P95: 1, P99: 2}, Slots: 16, InUse: 9, Waiting: 8, InRetry: 1, PriceDollars: 0.25,
	}
	s.Pipeline.Cache = &diskcache.Stats{State: "on", Bytes: 100, Bound: 200, Hits: 1, Misses: 2, BadPages: 3, Written: 4, Fill: 0.5}
	got := text()
	for _, line := range []string{
		`lsiofs_remote_requests_total{status="206"} 12`, `lsiofs_remote_requests_total{status="none"} 3`, `lsiofs_remote_retries_total{reason="throttled"} 2`,
		"lsiofs_remote_bytes_total 7", "lsiofs_remote_throttled_total 2", "lsiofs_remote_hedges_total 5", "lsiofs_remote_hedges_won_total 4",
		`lsiofs_remote_first_byte_seconds{quantile="0.5"} 0.5`, `lsiofs_remote_first_byte_seconds{quantile="0.99"} 2`,
		"lsiofs_remote_slots 16", "lsiofs_remote_slots_in_use 9", "lsiofs_remote_waiting_reads 8", "lsiofs_remote_retrying_reads 1", "lsiofs_remote_price_dollars_total 0.25",
		"lsiofs_cache_on 1", "lsiofs_cache_bytes 100", "lsiofs_cache_bound_bytes 200", "lsiofs_cache_fill_ratio 0.5", "lsiofs_cache_hit_pages_total 1",
		"lsiofs_cache_missed_pages_total 2", "lsiofs_cache_bad_pages_total 3", "lsiofs_cache_written_pages_total 4",
	} {
		require.Contains(t, got, line+"\n")
	}
	s.Pipeline.Cache.State = "full"
	require.Contains(t, text(), "lsiofs_cache_on 0\n")
}
