package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// benchTemp has temporary directories of measurements below one that is looked
// at in the end.
func benchTemp(t *testing.T) string {
	t.Helper()
	needMount(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	// A program with the race detector sleeps for a second before it ends, and
	// here many end.
	t.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return tmp
}

// small are the flags for a short run with little memory.
func small(t *testing.T) []string {
	return []string{"--memory", "64MiB", "--rounds", "1", "--seconds", "1", "--index-dir", t.TempDir()}
}

func made(t *testing.T, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made")
	ok(t, append(append([]string{"bench", "--make"}, args...), dir)...)
	return dir
}

func TestBenchMeasuresAllRows(t *testing.T) {
	tmp := benchTemp(t)
	data := made(t, "tar", "--records", "400", "--bytes", "12500", "--shards", "2")
	require.NoError(t, os.WriteFile(filepath.Join(data, "README.md"), nil, 0o644))
	var r bench.Report
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"bench", data, "--json"}, small(t)...)...).stdout), &r))
	require.Equal(t, 1, r.Rounds)
	require.EqualValues(t, 400, r.Dataset.Records)
	require.Equal(t, "tar", r.Dataset.Format)
	require.Equal(t, 2, r.Dataset.Shards)
	require.Equal(t, 1, r.Dataset.PassedOver)
	require.Equal(t, "README.md", r.Dataset.LeftOut[0].Path)
	require.NotEmpty(t, r.Machine.Kernel)
	rows := map[string]bench.Row{}
	for _, row := range r.Rows {
		rows[row.ID] = row
	}
	for _, id := range []string{
		"ceiling-1", "ceiling-2", "ceiling-4", "pread-sequential-hot", "pread-random-hot", "fetch", "mount-1", "mount-2", "mount-4",
		"mount-small", "cat", "mount-first",
	} {
		require.Empty(t, rows[id].NotMeasured, id)
		require.NotNil(t, rows[id].GiBPerSecond, id)
		require.Positive(t, rows[id].GiBPerSecond.Median, id)
	}
	require.Positive(t, rows["mount-1"].CPUMicros.Median)
	require.Equal(t, "ceiling-1", rows["mount-1"].Against)
	require.Positive(t, rows["mount-1"].Ratio.Median)
	require.NotNil(t, rows["mount-first"].Amplification)
	require.LessOrEqual(t, rows["mount-first"].Amplification.Median, 1.1, "a first epoch is read once, but for what is mapped")
	require.NotNil(t, rows["index-pass"].Value)
	require.NotNil(t, rows["resume"].Value)
	// Where nothing can be read with O_DIRECT, or fio is missing, it says so.
	for _, id := range []string{"pread-sequential-cold", "pread-random-cold", "fio-cold", "engine-cold", "mount-cold"} {
		require.Contains(t, rows, id)
		require.True(t, rows[id].GiBPerSecond != nil || rows[id].NotMeasured != "", id)
	}
	require.Contains(t, rows["fio-cold"].NotMeasured, "too little for random reads")
	nothingLeft(t, tmp)
}

func TestBenchOfCompressedShardsPrintsATable(t *testing.T) {
	tmp := benchTemp(t)
	data := made(t, "jsonl", "--zst", "--records", "3000", "--bytes", "1200", "--shards", "2")
	require.NoError(t, os.WriteFile(filepath.Join(data, "README.md"), nil, 0o644))
	printed := ok(t, append([]string{"bench", data}, small(t)...)...)
	require.Contains(t, printed.stderr, "taken: shard-{00000..00001}.jsonl.zst, 2 shards\nleft out: 1 file: README.md (")
	out := printed.stdout
	for _, line := range []string{"3000 records of 1", "jsonl, zstd, 2 shards", "FUSE ceiling, 4 readers", "zstd -dcq of all shards", "mount, 4 readers", "cat | reader", "from start to the first epoch's end", "index pass"} {
		require.Contains(t, out, line)
	}
	nothingLeft(t, tmp)
}

// A dataset that is too small for a row is measured by the others.
func TestBenchOfFewRecordsLeavesOutWhatNeedsMore(t *testing.T) {
	tmp := benchTemp(t)
	data := made(t, "jsonl", "--records", "40", "--bytes", "1200", "--shards", "2")
	var r bench.Report
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"bench", data, "--json"}, small(t)...)...).stdout), &r))
	reasons := map[string]string{}
	for _, row := range r.Rows {
		reasons[row.ID] = row.NotMeasured
	}
	require.Contains(t, reasons["mixture"], "more than 40 records")
	require.Empty(t, reasons["mount-1"])
	nothingLeft(t, tmp)
}

func TestBenchOfFoldersOfFilesComparesWithTar(t *testing.T) {
	tmp := benchTemp(t)
	data := made(t, "files", "--records", "300", "--bytes", "12KiB", "--shards", "3")
	var r bench.Report
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"bench", data, "--format", "files", "--json"}, small(t)...)...).stdout), &r))
	require.EqualValues(t, 300, r.Dataset.Records)
	require.Equal(t, 3, r.Dataset.Shards)
	rows := map[string]bench.Row{}
	for _, row := range r.Rows {
		rows[row.ID] = row
	}
	for _, id := range []string{"tar", "fetch", "mount-1", "mount-small", "mount-opened", "cat", "mount-first"} {
		require.Empty(t, rows[id].NotMeasured, id)
		require.Positive(t, rows[id].GiBPerSecond.Median, id)
	}
	require.Equal(t, "tar", rows["mount-opened"].Against)
	require.Positive(t, rows["mount-opened"].Ratio.Median)
	require.Positive(t, rows["mount-first"].Amplification.Median, "files that are read are counted")
	require.NotContains(t, rows, "pread-random-hot")
	nothingLeft(t, tmp)
}

// benchCheck runs a check with promises of the test's own.
func benchCheck(t *testing.T, promises []bench.Promise, args ...string) (exit.Code, bench.CheckReport, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	g := &globals{interrupts: &interrupts{force: context.Background()}, ui: terminal.New(&stdout, &stderr), running: true}
	g.ui.JSON = true
	o := &benchOptions{}
	c := newBenchCommandOf(o, g)
	require.NoError(t, c.ParseFlags(append(args, small(t)...)))
	o.paths = c.Flags().Args()
	err := runBenchCheck(t.Context(), o, g, promises)
	var r bench.CheckReport
	if stdout.Len() > 0 {
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &r))
	}
	return exit.CodeOf(err), r, stderr.String()
}

func TestBenchCheckFailsWhereAPromiseIsNotKept(t *testing.T) {
	tmp := benchTemp(t)
	data := made(t, "jsonl", "--records", "3000", "--bytes", "1200", "--shards", "2")
	kept := bench.Promise{Section: bench.SectionJSONL, What: "kept", Row: "mount-1", Figure: bench.FigureRatio, AtLeast: 1e-9}
	broken := bench.Promise{Section: bench.SectionJSONL, What: "broken", Row: "mount-1", Figure: bench.FigureCPU, AtMost: 1e-9}
	missing := bench.Promise{Section: bench.SectionJSONL, What: "missing", Row: "mount-cold", Figure: bench.FigureRatio, AtLeast: 1e9}
	other := bench.Promise{Section: bench.SectionTar, What: "other", Row: "mount-1", Figure: bench.FigureRatio, AtLeast: 1e9}
	args := []string{"--check", "--only", "jsonl", "--dir", t.TempDir(), data}

	code, r, said := benchCheck(t, []bench.Promise{kept, broken, missing, other}, args...)
	require.Equal(t, exit.Check, code, said)
	require.Len(t, r.Checks, 3, "what is promised of tar does not apply")
	require.Equal(t, bench.VerdictOK, r.Checks[0].Verdict)
	require.Equal(t, bench.VerdictShort, r.Checks[1].Verdict)
	require.Positive(t, r.Checks[1].Measured.Median)
	require.Equal(t, bench.VerdictNotMeasured, r.Checks[2].Verdict)
	require.Contains(t, r.Checks[2].Why, "too little for random reads")

	code, r, said = benchCheck(t, []bench.Promise{kept, missing}, args...)
	require.Equal(t, exit.OK, code, said)
	require.Len(t, r.Checks, 2)

	data = made(t, "fixed", "--records", "300", "--bytes", "500")
	code, r, said = benchCheck(t, []bench.Promise{kept}, "--check", "--only", "jsonl", "--dir", t.TempDir(), "--format", "fixed", "--record-bytes", "500", data)
	require.Equal(t, exit.OK, code, said)
	require.Contains(t, r.Checks[0].Why, "nothing is promised of fixed with records of 500 bytes")
	nothingLeft(t, tmp)
}

func TestBenchCheckWantsADisk(t *testing.T) {
	benchTemp(t)
	if _, err := os.Stat("/dev/shm"); err != nil {
		t.Skip("no /dev/shm here")
	}
	dir, err := os.MkdirTemp("/dev/shm", "lsiofs-test-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	r := lsiofs(t, append([]string{"bench", "--check", "--dir", dir}, small(t)...)...)
	require.Equal(t, exit.Failure, r.code)
	require.Contains(t, r.stderr, "is in memory: name a directory on a disk with --dir")
}

func TestBenchLeavesNothingWhenInterrupted(t *testing.T) {
	tmp := benchTemp(t)
	data := made(t, "tar", "--records", "400", "--bytes", "12500")
	c := program(t, append([]string{"bench", data, "--log-level", "debug"}, small(t)...)...)
	c.Args = append(c.Args, "--seconds", "8") // longer than it takes to interrupt it
	var stdout bytes.Buffer
	c.Stdout = &stdout
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	readUntil(t, stderr, `row="mount, 1 reader"`)
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	said, err := io.ReadAll(stderr)
	require.NoError(t, err)
	require.Error(t, c.Wait())
	require.Equal(t, int(exit.Interrupted), c.ProcessState.ExitCode(), "%s", said)
	require.Empty(t, stdout.String())
	nothingLeft(t, tmp)
	for _, line := range commandLines(t) {
		require.NotContains(t, line, tmp)
	}
}
