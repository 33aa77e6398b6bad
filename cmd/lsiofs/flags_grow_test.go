package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// grown returns the flags of a growing dataset, parsed from a command line.
func grown(t *testing.T, args ...string) *datasetFlags {
	d := &datasetFlags{}
	c := &cobra.Command{Use: "x"}
	d.add(c)
	d.addMix(c)
	d.addGrow(c)
	d.addResume()
	require.NoError(t, c.ParseFlags(args))
	return d
}

func TestGrowingDatasetFlags(t *testing.T) {
	s, _, err := grown(t, "--grow", "--run", "/r", "--window", "500000units", "--newest", "mtime", "--min-new", "40000units",
		"--settle", "2s", "--poll", "5s", "--hold").resolve("data")
	require.NoError(t, err)
	require.Equal(t, spec.Grow{
		On: true, Run: "/r", Window: "500000units", Newest: spec.NewestMTime, MinNew: "40000units",
		Settle: 2 * time.Second, Poll: 5 * time.Second, Hold: true, Latest: true,
	}, s.Grow)
	s, _, err = grown(t, "--grow", "--epoch", "7").resolve("data")
	require.NoError(t, err)
	require.Equal(t, spec.Grow{On: true}, s.Grow, "an epoch that is named is not the latest")
	s, _, err = grown(t, "--snapshot", "f.gz").resolve("data")
	require.NoError(t, err)
	require.Equal(t, spec.Grow{Snapshot: "f.gz"}, s.Grow)
}

func TestFlagsIncompatibleWithGrowingAreRefused(t *testing.T) {
	for _, c := range []struct {
		args    []string
		dataset string
		says    string
	}{
		{[]string{"--grow", "--mix", "a=1:/a", "--mix", "b=1:/b"}, "", "--grow can't be combined with --mix"},
		{[]string{"--grow"}, "s3://bucket/games", "at a bucket or web server can't be followed"},
		{[]string{"--grow"}, "https://host/games/", "at a bucket or web server can't be followed"},
		{[]string{"--grow", "--array", "x=x.npy", "--array", "y=y.npy"}, "data", "--grow can't be combined with --array"},
		{[]string{"--grow", "--format", "files"}, "data", "--grow can't be combined with --format files"},
		{[]string{"--snapshot", "f.gz", "--format", "files"}, "data", "--snapshot can't be combined with --format files"},
		{[]string{"--window", "all"}, "data", "--window belongs to --grow"},
		{[]string{"--hold"}, "data", "--hold belongs to --grow"},
		{[]string{"--grow", "--window", "many"}, "data", `--window: "many" is not a window`},
		{[]string{"--grow", "--min-new", "5GiB"}, "data", `--min-new: "5GiB" is not an amount`},
		{[]string{"--grow", "--window", "4shards", "--min-new", "5shards"}, "data", "--min-new 5shards with --window 4shards would wait forever: an epoch never has more than 4 shards"},
		{[]string{"--grow", "--newest", "size"}, "data", "--newest"},
		{[]string{"--grow", "--poll", "0s"}, "data", "--poll must be above 0"},
		{[]string{"--grow", "--settle", "-1s"}, "data", "--settle must be above 0"},
		{[]string{"--grow", "--snapshot", "f.gz"}, "data", "--snapshot with --grow needs --resume"},
	} {
		_, _, err := grown(t, c.args...).resolve(c.dataset)
		require.ErrorContains(t, err, c.says, c.args)
		require.Equal(t, exit.Usage, exit.CodeOf(err), c.args)
	}
}

func TestCheckpointDeterminesRun(t *testing.T) {
	const run = "3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f3f"
	write := func(run string) string {
		s := checkpoint.State{Dataset: order64, Run: run, Order: spec.Default().Order, Epoch: 7,
			Done: []order.Done{{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{3}}}}
		path := filepath.Join(t.TempDir(), "ckpt.json")
		require.NoError(t, os.WriteFile(path, s.Marshal(100), 0o644))
		return path
	}
	s, _, err := grown(t, "--grow", "--resume", write(run), "--snapshot", "f.gz").resolve("data")
	require.NoError(t, err)
	require.Equal(t, spec.Grow{On: true, Of: run, Snapshot: "f.gz"}, s.Grow)
	require.EqualValues(t, 7, s.Epoch)
	_, _, err = grown(t, "--grow", "--resume", write("")).resolve("data")
	require.ErrorContains(t, err, "is a checkpoint of a dataset without --grow: leave --grow out")
	require.Equal(t, exit.Checkpoint, exit.CodeOf(err))
}

// order64 looks like a fingerprint.
const order64 = "8f296df5d33156eeca0e7e50ac078243a7b716c8098781a15423f056d317637d"
