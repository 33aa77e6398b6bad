package fs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

func TestStatusShowsServiceStatistics(t *testing.T) {
	told := func(r *statusReport) string {
		var b strings.Builder
		r.DescribeService(func(label, format string, args ...any) {
			fmt.Fprintf(&b, "%s: %s\n", label, fmt.Sprintf(format, args...))
		})
		return b.String()
	}
	r := &statusReport{}
	require.Empty(t, told(r), "a file system answers as it does")

	r.Pipeline.Remote = &remote.Stats{Requests: map[string]uint64{"206": 12, "200": 12}, Bytes: 1 << 20, Slots: 16}
	r.Pipeline.Cache = &diskcache.Stats{Dir: "/c", State: "on", Bytes: 1 << 20, Bound: 1 << 30}
	require.Equal(t, `service: 24 requests (200: 12, 206: 12), 1.0 MiB
under way: 0 of at most 16 requests; 0 reads waiting for a slot, 0 to be retried
disk cache: 1.0 MiB of 1.0 GiB used in /c
`, told(r), "what did not happen is not told")

	s := r.Pipeline.Remote
	s.Throttled, s.Retries, s.Hedges, s.HedgesWon, s.PriceDollars, s.LastError = 3, map[string]uint64{"throttled": 3, "failed": 1000}, 5, 2, 0.25, "a.tar: 503"
	*r.Pipeline.Cache = diskcache.Stats{Dir: "/c", State: "off", Reason: "no space", Hits: 1, Misses: 3, BadPages: 2, Fill: 0.5}
	text := told(r)
	for _, want := range []string{
		"about $0.2500 at S3's list price", "tried again: 1,003 requests (failed: 1,000, throttled: 3); the service asked 3 times to slow down",
		"sent twice: 5 slow requests; the second response came first 2 times", "last error: a.tar: 503",
		"hits: 25.0 % of 4 pages; 50.0 % filled; 2 pages failed their checksum", "it is off (no space)",
	} {
		require.Contains(t, text, want)
	}
}

// For a mixture, status reports each source at a service under its name.
func TestStatusShowsServiceOfEachSource(t *testing.T) {
	r := &statusReport{}
	r.Pipeline.Sources = []pipeline.SourceStatus{
		{Name: "disk"}, {Name: "web", Remote: &remote.Stats{Requests: map[string]uint64{"206": 5}, Slots: 8}},
		{Name: "far", Remote: &remote.Stats{Slots: 4}, Cache: &diskcache.Stats{Dir: "/c", State: "on", Bytes: 1 << 20, Bound: 1 << 30}},
	}
	var lines []string
	r.DescribeService(func(label, format string, args ...any) {
		lines = append(lines, label+": "+fmt.Sprintf(format, args...))
	})
	require.Equal(t, []string{
		"source: web", "service: 5 requests (206: 5), 0 B", "under way: 0 of at most 8 requests; 0 reads waiting for a slot, 0 to be retried",
		"source: far", "service: 0 requests, 0 B", "under way: 0 of at most 4 requests; 0 reads waiting for a slot, 0 to be retried",
		"disk cache: 1.0 MiB of 1.0 GiB used in /c",
	}, lines)
}

func TestServiceCountsCoverOnlyWindow(t *testing.T) {
	s := &remote.Stats{Slots: 16, InUse: 5, FirstByte: remote.Latency{P50: 0.02, P95: 0.3}}
	got := serviceSince(explain.Snapshot{Requests: 100, Throttled: 7}, explain.Snapshot{Requests: 150, Throttled: 9}, s, 128)
	require.Equal(t, explain.Service{Requests: 50, Throttled: 2, Slots: 16, InUse: 5, Most: 128, FirstByteP50: 0.02, FirstByteP95: 0.3}, got)
}
