package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/readplan"
)

func planOf(t *testing.T, args ...string) (r readplan.Report) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"plan", "--json"}, args...)...).stdout), &r))
	return r
}

func TestPlanOfDataset(t *testing.T) {
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
	for _, p := range []readplan.StrategyPlan{scan, gather} {
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

func TestPlanContinuesFromCheckpoint(t *testing.T) {
	data := dataset(t)
	file := filepath.Join(t.TempDir(), "ckpt.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"epoch": 1, "samples": 990}`), 0o644))
	r := planOf(t, data, "--resume", file)
	require.EqualValues(t, 10, r.Records)
	require.EqualValues(t, 1, r.Epoch)
}

// A plan is made from the index: the kernel reports no shard as opened.
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
		require.Equal(t, exit.Usage, r.code, flags)
		require.Contains(t, r.stderr, words)
	}
}
