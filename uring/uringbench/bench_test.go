package uringbench

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/uring"
)

// BenchmarkRow compares the engine with fio, in three rounds of a second per row
// (LSIOFS_BENCH_ROUNDS sets another number). LSIOFS_BENCH_FILE names a file of 1 GiB that is kept;
// otherwise one is made in the temporary directory.
func BenchmarkRow(b *testing.B) {
	path := os.Getenv("LSIOFS_BENCH_FILE")
	if path == "" {
		path = filepath.Join(b.TempDir(), "data")
	}
	require.NoError(b, Make(b.Context(), path, 1<<30))
	rounds := 3
	if text := os.Getenv("LSIOFS_BENCH_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	for _, row := range Rows(path, 1<<30, time.Second, true) {
		b.Run(strings.ReplaceAll(row.Name, " ", "_"), func(b *testing.B) {
			var c Comparison
			for b.Loop() {
				var err error
				c, err = Compare(b.Context(), row, rounds)
				if errors.Is(err, ErrNoFio) {
					b.Skip(err)
				}
				require.NoError(b, err)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(c.Ours.BytesPerSecond()/(1<<20), "MiB/s")
			b.ReportMetric(c.Fio.BytesPerSecond()/(1<<20), "fio-MiB/s")
			b.ReportMetric(c.Throughput, "ratio")
			b.ReportMetric(c.Spread[0], "lowest")
			b.ReportMetric(c.Spread[1], "highest")
			b.ReportMetric(c.Ours.CPUSecondsPerGiB(), "CPU-s/GiB")
			b.ReportMetric(c.CPU, "CPU-ratio")
		})
	}
}

// BenchmarkStopTheWorld shows how long the world takes to stop amid cache hits.
func BenchmarkStopTheWorld(b *testing.B) {
	path := filepath.Join(b.TempDir(), "data")
	require.NoError(b, Make(b.Context(), path, StopBurstBytes))
	for _, mode := range []uring.Mode{uring.ModePread, uring.ModeUring} {
		b.Run(string(mode), func(b *testing.B) {
			var worst StopResult
			for b.Loop() {
				r, err := StopTheWorld(b.Context(), path, mode, time.Second)
				require.NoError(b, err)
				worst.Worst = max(worst.Worst, r.Worst)
				worst.Stops += r.Stops
			}
			b.ReportMetric(float64(worst.Worst.Microseconds())/1e3, "worst-ms")
			b.ReportMetric(float64(worst.Stops)/float64(b.N), "stops/op")
		})
	}
}
