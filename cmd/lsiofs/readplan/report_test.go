package readplan

import (
	"bytes"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// readsOf returns the forecast of a number of reads for each size.
func readsOf(counts map[int64]uint64) (r pipeline.ReadsForecast) {
	for size, n := range counts {
		r.Reads += n
		r.ReadBytes += size * int64(n)
		r.ByLength[bits.Len64(uint64(size))] += n
	}
	return r
}

func TestPlanReport(t *testing.T) {
	f := pipeline.Forecast{Records: 16384, RecordBytes: 185 << 20, Storages: []pipeline.StorageForecast{{
		Kind: "local", Root: "/data/train", Likes: storage.DefaultProfile(storage.KindVirtual), Strategy: spec.ReadScan, Reason: "no shard is compressed, and the dataset fits in memory",
		Scan: pipeline.ScanForecast{
			ReadsForecast: readsOf(map[int64]uint64{256 << 10: 1500, 70_000: 20}), Pieces: 1520, KeptBytes: 190 << 20, MemoryBytes: 1 << 30, Fits: true,
		},
		Gather: &pipeline.GatherForecast{
			ReadsForecast: readsOf(map[int64]uint64{12 << 10: 14000, 24 << 10: 1100, 100_000: 3}), GapBytes: 5 << 20, Config: plan.DefaultConfig(),
		},
	}}}
	print := func(name string, f pipeline.Forecast, workers uint64) {
		r := newReport(f)
		r.Dataset, r.Workers, r.RecordsLeft, r.Epoch = "/data/train", workers, 1_000_000, 3
		var out, err bytes.Buffer
		require.NoError(t, r.Print(terminal.New(&out, &err)))
		require.Empty(t, err.String())
		goldentest.Equal(t, name, out.String())
	}
	print("plan.txt", f, 1)
	s := &f.Storages[0]
	s.Strategy, s.Reason, s.Scan.Fits, s.Scan.MemoryBytes = spec.ReadGather, "asked for", false, 64<<20
	print("plan-gather.txt", f, 1)
	s.Strategy = spec.ReadScan
	s.Gather, s.Scan.Estimated, s.Scan.Fits, s.Scan.MemoryBytes = nil, true, false, 64<<20
	s.Scan.Compressed, s.Scan.Passes = 7, 7
	print("plan-compressed.txt", f, 4)
	s.Scan.Passes, s.Scan.Fits = 1234, true
	print("plan-passes.txt", f, 1)
	s.Strategy, s.Reason = spec.ReadSpool, "7 compressed shards have few gzip members, zstd or lz4 frames; decoded (4.2 GiB) they don't fit in memory in this order"
	s.Scan.Passes = s.Scan.Compressed
	s.Spool = &pipeline.SpoolForecast{ReadsForecast: readsOf(map[int64]uint64{128 << 10: 800}), Shards: 7, SpoolBytes: 4 << 30}
	print("plan-spool.txt", f, 1)
}
