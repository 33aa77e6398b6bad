package fs

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// Prometheus' own library parses a text and writes the same bytes.
func requireSameThroughLibrary(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err, "%s", text)
	var names []string
	for name := range families {
		names = append(names, name)
	}
	slices.Sort(names)
	var again bytes.Buffer
	for _, name := range names {
		_, err := expfmt.MetricFamilyToText(&again, families[name])
		require.NoError(t, err)
	}
	require.Equal(t, again.String(), string(text))
	return families
}

func TestPrometheusLibraryRoundTripsEachValueAndLabel(t *testing.T) {
	values := []float64{0, 1, -1, 0.5, 1e-9, 1e21, 123456789012, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1)}
	labels := []string{`plain`, `of "a"`, `back\slash`, "two\nlines", "ünï", ` spaced `, `a,b={}`}
	var all []labelledValue
	for i, label := range labels {
		all = append(all, labelledValue{label, values[i%len(values)]})
	}
	families := []family{{name: "b", help: "With \\ and\na \"line\".", kind: counterKind, label: "of", values: all}, {name: "empty", help: "Nothing.", kind: gaugeKind}}
	for i, v := range values {
		families = append(families, family{name: "a" + strings.Repeat("x", i), help: "One.", kind: gaugeKind, values: []labelledValue{{"", v}}})
	}
	read := requireSameThroughLibrary(t, exposition(families))
	require.NotContains(t, read, "empty")
	require.Equal(t, "With \\ and\na \"line\".", read["b"].GetHelp())
	for i, m := range read["b"].Metric {
		at := slices.IndexFunc(all, func(v labelledValue) bool { return v.of == m.Label[0].GetValue() })
		require.GreaterOrEqual(t, at, 0, "label %d", i)
		require.Equal(t, all[at].value, m.Counter.GetValue())
	}
	for i, v := range values {
		require.Equal(t, v, read["a"+strings.Repeat("x", i)].Metric[0].Gauge.GetValue())
	}
}

// All metrics that a mount can have, at once.
func TestMetricNamesFollowPrometheusConventions(t *testing.T) {
	epoch := uint64(3)
	s := &sample{view: &view{number: 1}}
	s.Pipeline.Engine.Engine = "uring"
	s.Pipeline.Remote = &remote.Stats{Requests: map[string]uint64{"206": 1}, Retries: map[string]uint64{"throttled": 2}}
	s.Pipeline.Cache, s.Pipeline.Growing, s.Pipeline.Cubes = &diskcache.Stats{}, &snapshot.Status{Epoch: &epoch}, &crops.Stats{}
	s.Sources = []sourceReport{{Name: "b"}, {Name: "a"}}
	text := metricsText(s)
	require.Greater(t, len(requireSameThroughLibrary(t, text)), 80)
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	require.NoError(t, err)
	problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool {
		return p.Metric == "lsiofs_remote_first_byte_seconds" // quantiles of the latest ones only: a summary would have to count all
	})
	require.Empty(t, problems)
}

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
