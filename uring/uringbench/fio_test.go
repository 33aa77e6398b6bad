package uringbench

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/uring"
)

func TestFioRunsSameReads(t *testing.T) {
	job := Job{Path: "/data", BlockBytes: 1 << 20, Depth: 16}
	cases := []struct {
		name   string
		engine string
		change func(j *Job)
		has    string // in this order
		hasNot string
	}{
		{"direct and random", FioUring, func(j *Job) { j.Direct, j.Random, j.Duration = true, true, 500*time.Millisecond },
			"--ioengine=io_uring --bs=1048576 --direct=1 --rw=randread --iomem_align=2097152 --iodepth=16 --fixedbufs=1 --registerfiles=1 --size=1073741824 --runtime=500ms --time_based", "--numjobs"},
		{"so many bytes", FioUring, func(j *Job) { j.Bytes = 3<<20 + 1 }, "--rw=read --iodepth=16 --size=1073741824 --io_size=4194304", "--time_based"},
		{"a process for each read", FioPsync, func(j *Job) { j.Random, j.Bytes = true, 64<<20 }, "--rw=randread --numjobs=16 --size=1073741824 --io_size=4194304", "--iodepth"},
		{"each a part of its own", FioPsync, func(j *Job) { j.Duration = time.Second }, "--rw=read --numjobs=16 --offset_increment=67108864 --size=67108864", "--io_size"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			j := job
			c.change(&j)
			args := strings.Join(fioArguments(j, c.engine, 1024), " ")
			for part := range strings.FieldsSeq(c.has) {
				_, rest, found := strings.Cut(" "+args+" ", " "+part+" ")
				require.True(t, found, "%s in %s", part, args)
				args = rest
			}
			require.NotContains(t, strings.Join(fioArguments(j, c.engine, 1024), " "), c.hasNot)
		})
	}
}

func TestFioReportIsParsed(t *testing.T) {
	r, err := fioResult([]byte("note: something\n" + `{"jobs": [{"error": 0, "job_runtime": 4000, "usr_cpu": 10, "sys_cpu": 15,
		"read": {"io_bytes": 8192, "total_ios": 2, "runtime": 2000}}]}`))
	require.NoError(t, err)
	require.Equal(t, Result{Bytes: 8192, Reads: 2, Seconds: 2, CPUSeconds: 1}, r)
	for _, bad := range []string{"", "{}", `{"jobs": []}`, `{"jobs": [{"error": 5, "read": {"runtime": 1}}]}`, "no report"} {
		_, err := fioResult([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestMissingFioIsReported(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Fio(t.Context(), Job{}, FioPsync)
	require.ErrorIs(t, err, ErrNoFio)
	_, err = Compare(t.Context(), Row{Job: Job{Path: madeFile(t), BlockBytes: 4096, Depth: 1, Bytes: 4096, Mode: uring.ModePread}, FioEngine: FioPsync, FioDepth: 1}, 1)
	require.ErrorIs(t, err, ErrNoFio)
}

func TestCompareRunsBoth(t *testing.T) {
	row := Row{
		Job:       Job{Path: madeFile(t), BlockBytes: 4096, Depth: 4, Random: true, Bytes: 32 << 20, Mode: uring.ModePread},
		FioEngine: FioPsync, FioDepth: 1,
	}
	c, err := Compare(t.Context(), row, 1)
	if err != nil {
		require.ErrorIs(t, err, ErrNoFio, "fio need not be there")
		return
	}
	require.EqualValues(t, 32<<20, c.Ours.Bytes)
	require.EqualValues(t, 32<<20, c.Fio.Bytes)
	require.InDelta(t, c.Ours.BytesPerSecond()/c.Fio.BytesPerSecond(), c.Throughput, 1e-9)
	require.Equal(t, [2]float64{c.Throughput, c.Throughput}, c.Spread)
	_, err = Compare(t.Context(), row, 0)
	require.Error(t, err)
}

func TestRowsIncludePromisedOnes(t *testing.T) {
	names := map[string]bool{}
	for _, row := range Rows("/data", 1<<30, time.Second, true) {
		require.False(t, names[row.Name], row.Name)
		names[row.Name] = true
		require.Equal(t, "/data", row.Job.Path)
		require.NoError(t, row.Job.check())
	}
	for _, name := range []string{
		"uring direct 128 KiB random QD 32", "uring direct 1 MiB sequential QD 16", "uring direct 4 KiB random QD 128",
		"uring hot 4 KiB random QD 32", "uring hot 4 KiB random QD 1 inline", "pread direct 4 KiB random QD 32", "uring direct 1 MiB random QD 16 at +333 B",
	} {
		require.True(t, names[name], name)
	}
	for _, row := range Rows("/data", 1<<30, time.Second, false) {
		require.Equal(t, uring.ModePread, row.Job.Mode, row.Name)
	}
}

func TestRowPassesByThroughputAndCPU(t *testing.T) {
	c := Comparison{Row: Row{MinThroughput: 0.9, MaxCPU: 1.5}, Throughput: 0.9, CPU: 1.5}
	require.True(t, c.Reached())
	c.Throughput = 0.89
	require.False(t, c.Reached())
	c.Throughput, c.CPU = 2, 1.51
	require.False(t, c.Reached())
	c.Row.MaxCPU = 0
	require.True(t, c.Reached())
}

func TestMedianIsMiddleValue(t *testing.T) {
	results := []Result{{Bytes: 5, Seconds: 1}, {Bytes: 1, Seconds: 1}, {Bytes: 3, Seconds: 1}, {Bytes: 9, Seconds: 1}}
	require.EqualValues(t, 3, median(results, Result.BytesPerSecond).Bytes)
	require.EqualValues(t, 3, median(results[:3], Result.BytesPerSecond).Bytes)
}
