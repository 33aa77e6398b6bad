package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/integration/bench/gate"
)

// benchTemp puts the temporary directories of measurements below one that the test checks at the
// end.
func benchTemp(t *testing.T) string {
	t.Helper()
	needMount(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	// A program with the race detector sleeps for a second before it ends, and many end here.
	t.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return tmp
}

// small returns the flags of a short run with little memory.
func small(t *testing.T) []string {
	return []string{"--memory", "64MiB", "--rounds", "1", "--seconds", "1", "--index-dir", t.TempDir()}
}

func made(t *testing.T, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made")
	makeAt(t, dir, args...)
	return dir
}

// makeAt writes a dataset of seeded data. args are its format and flags of integration/bench.
func makeAt(t *testing.T, dir string, args ...string) {
	t.Helper()
	var stderr bytes.Buffer
	require.Equal(t, exit.OK, gate.Run(t.Context(), append(append([]string{"--make"}, args...), dir), io.Discard, &stderr), "%s", &stderr)
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
	// If O_DIRECT is not possible, or fio is missing, the row gives the reason.
	for _, id := range []string{"pread-sequential-cold", "pread-random-cold", "fio-cold", "engine-cold", "mount-cold"} {
		require.Contains(t, rows, id)
		require.True(t, rows[id].GiBPerSecond != nil || rows[id].NotMeasured != "", id)
	}
	require.Contains(t, rows["fio-cold"].NotMeasured, "too little for random reads")
	nothingLeft(t, tmp)
}

func TestBenchPrintsTableForCompressedShards(t *testing.T) {
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

// A dataset too small for one row is still measured by the others.
func TestBenchSkipsRowsThatNeedMoreRecords(t *testing.T) {
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

func TestBenchComparesFilesetWithTar(t *testing.T) {
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

func TestBenchExplainsWhereOldFlagsMoved(t *testing.T) {
	for _, args := range [][]string{{"--check"}, {"--make", "tar", t.TempDir()}, {"--make", "jsonl", "--gz", "--records", "10", t.TempDir()}} {
		r := lsiofs(t, append([]string{"bench"}, args...)...)
		require.Equal(t, exit.Usage, r.code)
		require.Contains(t, r.stderr, "go run ./integration/bench")
	}
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

func TestBenchComparesWebServerWithBareRequests(t *testing.T) {
	tmp := benchTemp(t)
	data := made(t, "tar", "--records", "400", "--bytes", "12500", "--shards", "2")
	url, bodies := atServer(t, data)
	out := ok(t, append([]string{"bench", url + "?sig=secret", "--json"}, small(t)...)...)
	require.NotContains(t, out.stdout+out.stderr, "secret")
	var r bench.Report
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &r))
	require.EqualValues(t, 400, r.Dataset.Records)
	require.NotEmpty(t, r.Notes)
	require.Len(t, r.Rows, 3)
	for _, row := range r.Rows {
		require.Empty(t, row.NotMeasured, row.ID)
		require.Positive(t, row.GiBPerSecond.Median, row.ID)
		require.Positive(t, row.CPUPerGiB.Median, row.ID)
	}
	require.Positive(t, r.Rows[1].Ratio.Median)
	require.Positive(t, bodies())
	nothingLeft(t, tmp)

	text := ok(t, append([]string{"bench", url}, small(t)...)...).stdout
	for _, words := range []string{"400 records of", "bare requests of 256 KiB, 128 at a time", "cat | reader, without a cache", "from the disk cache"} {
		require.Contains(t, text, words)
	}
	// Shards smaller than a chunk.
	few, _ := atServer(t, made(t, "tar", "--records", "8", "--bytes", "5000", "--shards", "2"))
	ok(t, append([]string{"bench", few}, small(t)...)...)
}
