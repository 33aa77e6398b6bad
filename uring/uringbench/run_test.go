package uringbench

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// fileBytes is the size of the tests' file.
const fileBytes = 2<<20 + 5000

func madeFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "data")
	require.NoError(t, Make(t.Context(), path, fileBytes))
	return path
}

func TestMakeCreatesNonSparseFileAndReusesIt(t *testing.T) {
	path := madeFile(t)
	var first, again, other unix.Stat_t
	require.NoError(t, unix.Stat(path, &first))
	require.EqualValues(t, fileBytes, first.Size)
	require.GreaterOrEqual(t, first.Blocks*512, int64(fileBytes))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotEqual(t, content[:warmBlockBytes], content[warmBlockBytes:2*warmBlockBytes], "nor the same again and again")

	require.NoError(t, Make(t.Context(), path, fileBytes))
	require.NoError(t, unix.Stat(path, &again))
	require.Equal(t, first.Mtim, again.Mtim)

	require.NoError(t, os.Truncate(path, 0))
	require.NoError(t, os.Truncate(path, fileBytes))
	require.NoError(t, Make(t.Context(), path, fileBytes), "a sparse file of that size")
	require.NoError(t, unix.Stat(path, &other))
	require.GreaterOrEqual(t, other.Blocks*512, int64(fileBytes))
}

func TestCancelledMakeLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "data")
	require.ErrorIs(t, Make(ctx, path, fileBytes), context.Canceled)
	require.NoFileExists(t, path)
}

func TestRunReadsAccordingToJob(t *testing.T) {
	path := madeFile(t)
	cases := []struct {
		name  string
		job   Job
		reads int64
	}{
		{"one at a time", Job{BlockBytes: 4096, Depth: 1, Bytes: 40_960}, 10},
		{"whole blocks", Job{BlockBytes: 4096, Depth: 4, Bytes: 40_961}, 11},
		{"fewer than the depth", Job{BlockBytes: 4096, Depth: 32, Bytes: 4096}, 1},
		{"more than the file", Job{BlockBytes: 1 << 20, Depth: 2, Bytes: 7 << 20}, 7},
		{"a region", Job{BlockBytes: 4096, RegionBytes: 4096, Depth: 2, Bytes: 8192}, 2},
		{"in random order", Job{BlockBytes: 4096, Depth: 8, Random: true, Bytes: 4 << 20}, 1024},
		{"at any offset", Job{BlockBytes: 4096, Depth: 8, ShiftBytes: 333, Random: true, Bytes: 4 << 20}, 1024},
		{"inline", Job{BlockBytes: 4096, Depth: 1, Inline: true, Bytes: 1 << 20}, 256},
	}
	for _, mode := range []uring.Mode{uring.ModePread, uring.ModeAuto} {
		for _, c := range cases {
			t.Run(string(mode)+" "+c.name, func(t *testing.T) {
				c.job.Path, c.job.Mode = path, mode
				require.NoError(t, Warm(t.Context(), c.job))
				r, err := Run(t.Context(), c.job)
				require.NoError(t, err)
				require.Equal(t, c.reads, r.Reads)
				require.Equal(t, c.reads*int64(c.job.BlockBytes), r.Bytes)
				require.Positive(t, r.Seconds)
				require.Positive(t, r.BytesPerSecond())
				require.GreaterOrEqual(t, r.CPUSecondsPerGiB(), 0.0)
				require.GreaterOrEqual(t, r.Status.Reads, uint64(c.reads))
				require.Zero(t, r.Status.Errors)
			})
		}
	}
}

func TestRunEndsWithItsDurationOrContext(t *testing.T) {
	path := madeFile(t)
	job := Job{Path: path, BlockBytes: 4096, Depth: 8, Random: true, Mode: uring.ModePread, Duration: time.Millisecond}
	r, err := Run(t.Context(), job)
	require.NoError(t, err)
	require.Positive(t, r.Reads)

	job.Duration = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = Run(ctx, job)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestDirectJobsReadDirectlyOrReportThatTheyCannot(t *testing.T) {
	path := madeFile(t)
	job := Job{Path: path, BlockBytes: 128 << 10, Depth: 4, Direct: true, Mode: uring.ModePread, Bytes: fileBytes}
	r, err := Run(t.Context(), job)
	if err != nil {
		require.ErrorIs(t, err, ErrNotDirect)
		return
	}
	require.Positive(t, r.Status.DirectReads)
	require.NoError(t, Warm(t.Context(), job))
}

func TestImpossibleJobsAreRefused(t *testing.T) {
	path := madeFile(t)
	good := Job{Path: path, BlockBytes: 4096, Depth: 1, Bytes: 1, Mode: uring.ModePread}
	cases := []struct {
		change func(j *Job)
		want   string
	}{
		{func(j *Job) { j.BlockBytes = 0 }, "block of 0 bytes: must be 1 to"},
		{func(j *Job) { j.Depth = 0 }, "depth 0: must be 1 to"},
		{func(j *Job) { j.Depth, j.BlockBytes = 4096, 1<<20 }, "must be 1073741824 bytes together at most"},
		{func(j *Job) { j.Bytes = 0 }, "needs a duration or a number of bytes"},
		{func(j *Job) { j.Inline, j.Direct = true, true }, "not directly"},
		{func(j *Job) { j.ShiftBytes = -1 }, "shift by -1 bytes"},
		{func(j *Job) { j.RegionBytes = fileBytes + 1 }, "is not in a file of 2102152"},
		{func(j *Job) { j.BlockBytes = 4 << 20 }, "hold no block of 4194304"},
		{func(j *Job) { j.ShiftBytes = fileBytes }, "hold no block of 4096"},
		{func(j *Job) { j.Path += "-not-there" }, "no such file"},
		{func(j *Job) { j.Mode = "aio" }, "unknown"},
	}
	for _, c := range cases {
		j := good
		c.change(&j)
		_, err := Run(t.Context(), j)
		require.ErrorContains(t, err, c.want)
	}
}

func TestStopTheWorldCountsStops(t *testing.T) {
	r, err := stopTheWorld(t.Context(), madeFile(t), uring.ModeAuto, time.Millisecond, 4*stopBlockBytes)
	require.NoError(t, err)
	require.Positive(t, r.Stops)
	require.Positive(t, r.Worst)
}
