package main

import (
	"bytes"
	"encoding/json"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// readsOf are so many reads of one size after the other.
func readsOf(counts map[int64]uint64) (r pipeline.ReadsForecast) {
	for size, n := range counts {
		r.Reads += n
		r.ReadBytes += size * int64(n)
		r.ByLength[bits.Len64(uint64(size))] += n
	}
	return r
}

func TestPlanForPeople(t *testing.T) {
	f := pipeline.Forecast{Records: 16384, RecordBytes: 185 << 20, Storages: []pipeline.StorageForecast{{
		Kind: "local", Root: "/data/train", Likes: profile.Defaults(profile.KindVirtual), Strategy: spec.ReadScan, Reason: "no shard is compressed, and memory holds the dataset",
		Scan: pipeline.ScanForecast{
			ReadsForecast: readsOf(map[int64]uint64{256 << 10: 1500, 70_000: 20}), Pieces: 1520, KeptBytes: 190 << 20, MemoryBytes: 1 << 30, Fits: true,
		},
		Gather: &pipeline.GatherForecast{
			ReadsForecast: readsOf(map[int64]uint64{12 << 10: 14000, 24 << 10: 1100, 100_000: 3}), GapBytes: 5 << 20, Config: plan.DefaultConfig(),
		},
	}}}
	print := func(name string, f pipeline.Forecast, workers uint64) {
		r := newReadPlan(f)
		r.Dataset, r.Workers, r.RecordsLeft, r.Epoch = "/data/train", workers, 1_000_000, 3
		var out, err bytes.Buffer
		require.NoError(t, r.print(newUI(&out, &err)))
		require.Empty(t, err.String())
		golden(t, name, out.String())
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
	s.Strategy, s.Reason = spec.ReadSpool, "7 compressed shards of few gzip members, zstd or lz4 frames (4.2 GiB decoded) are more than memory holds in this order"
	s.Spool = &pipeline.SpoolForecast{ReadsForecast: readsOf(map[int64]uint64{128 << 10: 800}), Shards: 7, SpoolBytes: 4 << 30}
	print("plan-spool.txt", f, 1)
}

func planOf(t *testing.T, args ...string) (r readPlan) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"plan", "--json"}, args...)...).stdout), &r))
	return r
}

func TestPlanOfADataset(t *testing.T) {
	data := dataset(t)
	all := planOf(t, data, "--records", "0")
	require.EqualValues(t, 1000, all.Records)
	require.EqualValues(t, 1000, all.RecordsLeft)
	require.Len(t, all.Storages, 1)
	scan, gather := all.Storages[0].Plans[0], all.Storages[0].Plans[1]
	require.Equal(t, "scan", scan.Strategy)
	require.True(t, scan.InUse)
	require.Equal(t, "gather", gather.Strategy)
	require.False(t, gather.InUse)
	for _, p := range []strategyPlan{scan, gather} {
		require.InDelta(t, 1, p.Amplification-float64(p.GapBytes)/float64(all.RecordBytes), 0.05, "all of an epoch is read once")
		n := uint64(0)
		for _, b := range p.Histogram {
			n += b.Reads
		}
		require.Equal(t, p.Reads, n)
	}

	require.True(t, *scan.FitsMemory)
	require.NotZero(t, scan.Pieces)
	require.NotZero(t, scan.KeptBytes)

	few := planOf(t, data, "--worker", "1/4", "--from", "400", "--records", "10", "--epoch", "2", "--shuffle", "full")
	require.EqualValues(t, 10, few.Records)
	require.EqualValues(t, 150, few.RecordsLeft)
	require.EqualValues(t, 2, few.Epoch)
	require.Greater(t, few.Storages[0].Plans[0].Amplification, few.Storages[0].Plans[1].Amplification, "ten records at random")
	require.Contains(t, ok(t, "plan", data).stdout, "scan (in use)")
	gathered := planOf(t, data, "--read", "gather").Storages[0]
	require.False(t, gathered.Plans[0].InUse)
	require.True(t, gathered.Plans[1].InUse)
	require.Equal(t, "asked for", gathered.Reason)
}

func TestPlanGoesOnFromACheckpoint(t *testing.T) {
	data := dataset(t)
	file := filepath.Join(t.TempDir(), "ckpt.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"epoch": 1, "samples": 990}`), 0o644))
	r := planOf(t, data, "--resume", file)
	require.EqualValues(t, 10, r.Records)
	require.EqualValues(t, 1, r.Epoch)
}

// A plan is made of the index: the kernel tells of no shard that was opened.
func TestPlanReadsNoShard(t *testing.T) {
	data := dataset(t)
	want := ok(t, "plan", data).stdout
	shards, err := filepath.Glob(filepath.Join(data, "*.tar"))
	require.NoError(t, err)
	require.NotEmpty(t, shards)
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	defer unix.Close(watch)
	for _, shard := range shards {
		_, err := unix.InotifyAddWatch(watch, shard, unix.IN_OPEN|unix.IN_ACCESS)
		require.NoError(t, err)
	}
	require.Equal(t, want, ok(t, "plan", data).stdout)
	events := make([]byte, 4096)
	_, err = unix.Read(watch, events)
	require.ErrorIs(t, err, unix.EAGAIN, "a shard was opened")
	f, err := os.Open(shards[0])
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = unix.Read(watch, events)
	require.NoError(t, err, "the watch does tell of openings")
}

func TestPlanRefusesWhatCatRefuses(t *testing.T) {
	data := dataset(t)
	for flags, words := range map[string]string{
		"--worker 4/4":              "must be below the number of workers",
		"--from 1001":               "--from (1001) must be at most the number of records (1000)",
		"--worker 1/2 --workers 3":  "differ",
		"--records -1":              "must be a whole number",
		"--resume x.json --from 17": "leave one of them out",
	} {
		r := lsiofs(t, append([]string{"plan", data}, strings.Fields(flags)...)...)
		require.Equal(t, exitUsage, r.code, flags)
		require.Contains(t, r.stderr, words)
	}
}
