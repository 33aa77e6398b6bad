package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/demo"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
)

// needMount skips the test if nothing can be mounted, or fails it in CI. It makes processes that
// this one starts run as lsiofs.
func needMount(t *testing.T) {
	t.Helper()
	if err := doctor.CanMount(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI=true, and nothing can be mounted here: %v", err)
		}
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Setenv(asProgram, "1")
}

// dataset makes the demo's shards, with a directory for their index.
func dataset(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shards")
	_, err := demo.MakeShards(dir)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".lsiofs"), 0o700))
	return dir
}

// program prepares a run of lsiofs in a separate process.
func program(t *testing.T, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

// daemon mounts in the background and unmounts at the end of the test.
func daemon(t *testing.T, data string, flags ...string) (mnt string, info mounting.Info) {
	t.Helper()
	needMount(t)
	mnt = t.TempDir()
	t.Cleanup(func() { endDaemon(t, mnt) })
	out, err := program(t, append([]string{"mount", data, mnt, "--daemon", "--json"}, flags...)...).Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &info), "%s", out)
	require.Equal(t, mnt, info.Mount)
	return mnt, info
}

// endDaemon unmounts the daemon if the test has not, and waits for its process, which may still
// store something in directories that the test removes.
func endDaemon(t *testing.T, mnt string) {
	t.Helper()
	_ = exec.Command("umount", "-l", mnt).Run()
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(commandLines(t), func(line string) bool { return strings.Contains(line, "\x00"+mnt+"\x00") })
	}, 90*time.Second, 5*time.Millisecond, "a daemon is left")
}

// commandLines returns the command lines of the processes of this session that are no older than
// this one, and of those that run its program. Others are left out because reading their command
// line may hang, if they wait for a page of a file system that does not answer.
func commandLines(t *testing.T) (lines []string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	session, born := sessionAndBirth("/proc/self")
	processes, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range processes {
		exe, _ := os.Readlink(dir + "/exe") // "" for a process that has ended
		if s, b := sessionAndBirth(dir); exe == self || s == session && b >= born {
			line, _ := os.ReadFile(dir + "/cmdline")
			lines = append(lines, string(line))
		}
	}
	return lines
}

// sessionAndBirth returns a process's session and its start time in ticks, or zeros if it has
// ended.
func sessionAndBirth(dir string) (session, born int) {
	b, _ := os.ReadFile(dir + "/stat")
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from the third field on
	if len(fields) < 20 {
		return 0, 0
	}
	session, _ = strconv.Atoi(fields[6-3])
	born, _ = strconv.Atoi(fields[22-3])
	return session, born
}

// read returns the contents of a file, such as one of a mount.
func read(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(b)
}

func TestCatMatchesMount(t *testing.T) {
	data := dataset(t)
	order := []string{"--seed", "7", "--shuffle-size", "300", "--lanes", "4", "--chunk-records", "16", "--batch", "3"}
	mnt, _ := daemon(t, data, append(order, "--workers", "3")...)
	for _, c := range []struct {
		name, path string
		flags      []string
	}{
		{"a worker", "worker-1.tar", []string{"--worker", "1/3"}},
		{"its IDs", "worker-1.ids", []string{"--worker", "1/3", "--ids"}},
		{"its offsets", "worker-1.offsets", []string{"--worker", "1", "--workers", "3", "--offsets"}},
		{"another epoch and number of workers", "epoch-5/worker-3-of-4.tar", []string{"--worker", "3/4", "--epoch", "5"}},
		{"from the middle", "epoch-2/from-417/worker-0-of-2.tar", []string{"--worker", "0/2", "--epoch", "2", "--from", "417"}},
		{"from the end", "epoch-2/from-1000/worker-0-of-2.tar", []string{"--worker", "0/2", "--epoch", "2", "--from", "1000"}},
		{"with pread", "worker-2.tar", []string{"--worker", "2/3", "--io", "pread", "--memory", "1MiB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := read(t, mnt, c.path)
			require.NotEmpty(t, want)
			got := ok(t, append(append([]string{"cat", data}, order...), c.flags...)...).stdout
			require.True(t, want == got, "%d bytes, %d wanted", len(got), len(want))
		})
	}
}

func TestCatWithPadding(t *testing.T) {
	data := dataset(t)
	// 1000 records, rounds of 7·16: 1008 with pad, 896 with drop.
	for tail, want := range map[string]int{"pad": 144, "drop": 128, "keep": 144} {
		r := ok(t, "cat", data, "--worker", "0/7", "--batch", "16", "--tail", tail, "--ids")
		require.Equal(t, want, len(r.stdout)/16, tail)
	}
	r := lsiofs(t, "cat", data, "--from", "1001")
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, "--from (1001) must be at most the number of records (1000)")
}

func TestCatEndsQuietlyWhenReaderCloses(t *testing.T) {
	data := dataset(t)
	ok(t, "index", data) // otherwise cat would report that it indexed
	r, w, err := os.Pipe()
	require.NoError(t, err)
	c := program(t, "cat", data)
	var stderr bytes.Buffer
	c.Stdout, c.Stderr = w, &stderr
	require.NoError(t, c.Start())
	require.NoError(t, w.Close())
	_, err = io.ReadFull(r, make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, r.Close()) // 2 MB do not fit into the pipe
	require.Error(t, c.Wait())
	require.Equal(t, int(exit.Pipe), c.ProcessState.ExitCode())
	require.Equal(t, "taken: shard-{000..007}.tar, 8 shards\n", stderr.String())
}

func TestResumeWithOtherWorkers(t *testing.T) {
	data := dataset(t)
	mnt, _ := daemon(t, data, "--seed", "3", "--workers", "2")
	whole := ok(t, "cat", data, "--seed", "3", "--ids").stdout // G
	file := filepath.Join(t.TempDir(), "c.json")
	ok(t, "checkpoint", "save", mnt, file, "--consumed", "10,7")

	r := lsiofs(t, "mount", data, t.TempDir(), "--resume", file, "--seed", "4")
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, "--seed (4) differs from "+file+", which has 3")

	// Workers 0 and 1 took G[0,2,…,18] and G[1,3,…,13].
	seen := map[string]int{}
	for i := range 20 {
		if i%2 == 0 || i < 14 {
			seen[whole[16*i:16*i+16]]++
		}
	}
	for _, w := range []string{"0/3", "1/3", "2/3"} {
		ids := ok(t, "cat", data, "--resume", file, "--worker", w, "--ids").stdout
		for ; ids != ""; ids = ids[16:] {
			seen[ids[:16]]++
		}
	}
	require.Len(t, seen, 1000)
	for id, n := range seen {
		require.Equal(t, 1, n, "%x", id)
	}

	again, info := daemon(t, data, "--resume", file)
	require.EqualValues(t, 2, info.Workers, "as many as in the file")
	require.EqualValues(t, 983, info.Left)
	require.True(t, read(t, again, "worker-1.tar") == ok(t, "cat", data, "--resume", file, "--worker", "1").stdout)
}

func TestRestoreIntoRunningMount(t *testing.T) {
	data := dataset(t)
	mnt, _ := daemon(t, data, "--workers", "2")
	file := filepath.Join(t.TempDir(), "c.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"epoch": 4, "samples": 900}`), 0o600))
	ok(t, "checkpoint", "restore", file, mnt)
	require.Len(t, read(t, mnt, "worker-0.ids"), 50*16)
	require.Contains(t, ok(t, "checkpoint", "show", mnt).stdout, "epoch        4")

	for doc, says := range map[string]string{
		`{"epoch": 4, "samples": 1099511627776}`:     "1099511627776",
		`{"epoch": 4, "smaples": 1}`:                 "smaples",
		string(savedState(1, 2, 3, 4).Marshal(1000)): "dataset",
	} {
		require.NoError(t, os.WriteFile(file, []byte(doc), 0o600))
		r := lsiofs(t, "checkpoint", "restore", file, mnt)
		require.Equal(t, exit.Checkpoint, r.code)
		require.Contains(t, r.stderr, says)
		require.NotContains(t, r.stderr, "invalid argument", "words, not an errno")
	}
	require.Len(t, read(t, mnt, "worker-0.ids"), 50*16, "a refusal changes nothing")
}

func TestMountWarnings(t *testing.T) {
	data := dataset(t)
	needMount(t)
	mnt := t.TempDir()
	t.Cleanup(func() { endDaemon(t, mnt) })
	out, err := program(t, "mount", data, mnt, "--daemon", "--workers", "8", "--batch", "200", "--tail", "drop",
		"--shuffle-size", "64", "--lanes", "1", "--chunk-records", "1000").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "warning: --tail drop leaves 8 of 8 workers without records: a round of all workers takes 1,600")
	require.Contains(t, string(out), "warning: the shuffle is poor")
	require.Contains(t, string(out), "--shuffle-size")

	// A resumed checkpoint determines the order, so a warning about it would be useless.
	file := filepath.Join(t.TempDir(), "ckpt.json")
	ok(t, "checkpoint", "save", mnt, file)
	ok(t, "umount", mnt)
	out, err = program(t, "mount", data, mnt, "--daemon", "--resume", file, "--tail", "drop").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "warning: --tail drop leaves 8 of 8 workers without records")
	require.NotContains(t, string(out), "the shuffle is poor")
}

func TestIndexAndInspect(t *testing.T) {
	data := dataset(t)
	var first, second, rebuilt indexSummary
	for i, args := range [][]string{{}, {}, {"--rebuild"}} {
		r := ok(t, append([]string{"index", data, "--json"}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(r.stdout), []*indexSummary{&first, &second, &rebuilt}[i]))
	}
	require.EqualValues(t, demo.Shards*demo.SamplesPerShard, first.Records)
	require.Equal(t, []int{0, demo.Shards, 0}, []int{first.Reused, second.Reused, rebuilt.Reused})
	require.Equal(t, first.Fingerprint, rebuilt.Fingerprint)
	require.Contains(t, ok(t, "index", data).stdout, "1,000")

	var i inspect.Report
	r := ok(t, "inspect", data, "--json", "--workers", "2", "--chunk-records", "10")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &i), r.stdout)
	require.Equal(t, first.Fingerprint, i.Fingerprint)
	require.EqualValues(t, 1000, i.Records)
	require.EqualValues(t, demo.Shards*13, i.Chunks, "125 records in chunks of 10")
	require.EqualValues(t, 10, i.ChunkRecords.Max)
	require.EqualValues(t, 5, i.ChunkRecords.Min)
	require.InDelta(t, 1.0, i.Mixing.Global.Value, 0.5)
	total := uint64(0)
	for _, b := range i.Histogram {
		total += b.Records
	}
	require.Equal(t, i.Records, total)
	require.Contains(t, ok(t, "inspect", data).stdout, "all records, G")
}

func TestInvalidDatasets(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"empty": func(string) error { return nil },
		"cut off": func(dir string) error {
			if _, err := demo.MakeShards(filepath.Join(dir, "s")); err != nil {
				return err
			}
			return os.Truncate(filepath.Join(dir, "s", "shard-003.tar"), 12_345)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, make(dir))
			r := lsiofs(t, "cat", dir, "--index-dir", t.TempDir())
			require.Equal(t, exit.Dataset, r.code, r.stderr)
			require.Empty(t, r.stdout)
		})
	}
	r := lsiofs(t, "cat", filepath.Join(t.TempDir(), "missing"), "--index-dir", t.TempDir())
	require.Equal(t, exit.Dataset, r.code)
	require.Contains(t, r.stderr, "missing")
}

// No command takes or leaves out files silently: each prints both in a line and has the numbers in
// its JSON.
func TestCommandsPrintIncludedAndExcludedFiles(t *testing.T) {
	data := t.TempDir()
	for name, text := range map[string]string{
		"train-00.jsonl": "{}\n", "train-01.jsonl": "{}\n{}\n", "README.md": "about\n", "_logs/1.jsonl": "{}\n", ".hidden.jsonl": "{}\n", "train-02.jsonl.part": "{",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(data, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(data, name), []byte(text), 0o644))
	}
	index := t.TempDir()
	const lines = "taken: train-{00..01}.jsonl, 2 shards\nleft out: 4 files: .hidden.jsonl, README.md, _logs/, … (reasons: lsiofs inspect --files)\n"
	for _, args := range [][]string{
		{"cat", data, "--ids", "--index-dir", index},
		{"index", data, "--index-dir", index},
		{"inspect", data, "--index-dir", index},
		{"verify", data, "--index-dir", index},
		{"plan", data, "--index-dir", index},
		{"filter", data, filepath.Join(t.TempDir(), "made"), "--settle", "1s", "--", "cat"},
	} {
		require.Contains(t, ok(t, args...).stderr, lines, args[0])
		if args[0] == "cat" {
			continue // its output is the stream
		}
		var r struct {
			Shards     *int               `json:"shards"`
			PassedOver *int               `json:"files_passed_over"`
			Taken      []discover.Group   `json:"taken"`
			LeftOut    []discover.Verdict `json:"left_out"`
		}
		require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"--json"}, args...)...).stdout), &r), args[0])
		require.NotNil(t, r.Shards, args[0])
		require.NotNil(t, r.PassedOver, args[0])
		require.Equal(t, []int{2, 4}, []int{*r.Shards, *r.PassedOver}, args[0])
		require.Equal(t, []discover.Group{{Naming: "train-{00..01}.jsonl", Shards: 2}}, r.Taken, args[0])
		require.Len(t, r.LeftOut, 3, args[0])
		require.Equal(t, discover.Verdict{Path: "README.md", Reason: "its name does not say the shards' format"}, r.LeftOut[1], args[0])
	}

	mnt, info := daemon(t, data, "--index-dir", index)
	require.Equal(t, []int{2, 4}, []int{info.Shards, info.FilesLeftOut})
	require.Equal(t, lines, info.Taken+"\n"+info.LeftOut+"\n")
	var status struct {
		Pipeline struct {
			Shards  int      `json:"shards"`
			LeftOut int      `json:"files_left_out"`
			First   []string `json:"files_left_out_first"`
		} `json:"pipeline"`
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, mnt, "status.json")), &status))
	require.Equal(t, []int{2, 4}, []int{status.Pipeline.Shards, status.Pipeline.LeftOut})
	require.Equal(t, []string{".hidden.jsonl", "README.md", "_logs/"}, status.Pipeline.First)
	require.Contains(t, read(t, mnt, "metrics"), "\nlsiofs_shards 2\n")
	require.Contains(t, read(t, mnt, "metrics"), "\nlsiofs_files_left_out 4\n")
	ok(t, "umount", mnt)
	out, err := program(t, "mount", data, mnt, "--daemon", "--index-dir", index).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, strings.ReplaceAll(string(out), "\n  ", "\n"), lines)
}

// The files of a mount are the same records several times, so neither a mount nor a directory that
// contains one is a dataset. One folder of a mount is, and so are the files of one folder.
func TestMountIsNotADataset(t *testing.T) {
	parent := t.TempDir()
	data, mnt := filepath.Join(parent, "data"), filepath.Join(parent, "mnt")
	require.NoError(t, os.Mkdir(data, 0o755))
	require.NoError(t, os.Mkdir(mnt, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(data, "a.jsonl"), []byte("{}\n{}\n"), 0o644))
	index := []string{"--index-dir", t.TempDir()}
	needMount(t)
	t.Cleanup(func() { endDaemon(t, mnt) })
	out, err := program(t, append(index, "mount", data, mnt, "--daemon")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, tt := range []struct{ dataset, text string }{
		{mnt, "name one directory of it (" + mnt + "/epoch-0)"}, {mnt + "/*/*.jsonl", "is a mount of lsiofs"}, {mnt + "/**/*.jsonl", "is a mount of lsiofs"},
		{parent, "--exclude mnt"},
	} {
		for _, args := range [][]string{{"index", tt.dataset}, {"plan", tt.dataset, "--grow", "--run", t.TempDir()}} {
			r := lsiofs(t, append(index, args...)...)
			require.Equal(t, exit.Dataset, r.code, "%q: %s", args, r.stderr)
			require.Contains(t, r.stderr, tt.text, "%q", args)
		}
	}
	for _, args := range [][]string{
		{"index", parent, "--exclude", "mnt"}, {"index", filepath.Join(mnt, "worker-0.jsonl")}, {"index", mnt + "/worker-*"}, {"index", mnt + "/epoch-0"},
		{"index", mnt + "/epoch-0/from-0"}, {"index", mnt + "/epoch-0/*.jsonl"},
	} {
		var r indexSummary
		require.NoError(t, json.Unmarshal([]byte(ok(t, append(append(index, "--json"), args...)...).stdout), &r))
		require.EqualValues(t, 2, r.Records, args)
	}
}

// Shards without records may be meant to be empty or may have lost their records: they are counted,
// and one is named.
func TestShardsWithoutRecordsAreNamed(t *testing.T) {
	data := t.TempDir()
	for name, text := range map[string]string{"a.jsonl": "{}\n", "b.jsonl": "", "c.jsonl": "\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(data, name), []byte(text), 0o644))
	}
	r := ok(t, "index", data, "--index-dir", t.TempDir())
	require.Contains(t, r.stderr, "taken: a.jsonl, b.jsonl, c.jsonl, 3 shards (2 without records, such as b.jsonl)\n")
}

// Without the warning, a folder of images with captions would silently become lines of captions.
func TestMountWarnsIfItReadsOnlyTextsNextToImages(t *testing.T) {
	needMount(t)
	data, mnt := t.TempDir(), t.TempDir()
	for i := range 3 {
		require.NoError(t, os.WriteFile(filepath.Join(data, fmt.Sprintf("%d.jpg", i)), []byte("picture"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(data, fmt.Sprintf("%d.txt", i)), []byte("caption\n"), 0o600))
	}
	t.Cleanup(func() { endDaemon(t, mnt) })
	for dataset, warned := range map[string]bool{data: true, filepath.Join(data, "*.txt"): false} {
		out, err := program(t, "mount", dataset, mnt, "--daemon", "--index-dir", t.TempDir()).CombinedOutput()
		require.NoError(t, err, "%s", out)
		if warned {
			require.Contains(t, string(out), "warning: 3 shards of format lines found, and 3 files skipped: if each file is a sample")
		} else {
			require.NotContains(t, string(out), "skipped: if")
		}
		ok(t, "umount", mnt)
	}
}
