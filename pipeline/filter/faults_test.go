package filter

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/filter/command"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

type member struct{ name, data string }

func tarOf(t *testing.T, members ...member) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.data)), Mode: 0o644}))
		_, err := w.Write([]byte(m.data))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.String()
}

// game returns a game of one frame.
func game() string {
	b := make([]byte, synthetic.FrameBytes)
	b[0] = 6
	return gz(string(b))
}

// A truncated tar of games is detected while its first games are being filtered.
func TestDamagedTarOfGamesIsSkippedAlone(t *testing.T) {
	t.Parallel()
	whole := tarOf(t, member{"1.gz", game()}, member{"2.gz", game()}, member{"3.gz", game()})
	w := newWorld(t, map[string]string{"a.tar": whole[:len(whole)-3000], "b.tar": whole})
	c := w.config(ByProcess, upper...)
	c.Format.Name = "lc0"
	_, err := w.run(c)
	require.ErrorContains(t, err, "a.tar: ")
	require.ErrorContains(t, err, "the file ends inside a header")
	c.OnFailed = FailedSkip
	counts, err := w.run(c)
	require.NoError(t, err)
	require.Equal(t, uint64(1), counts.Failed)
	require.Contains(t, w.made(), "b.tar")
	require.Len(t, w.made(), 1)
}

// Errors that no filtered data has caused end the run, even if failures are skipped.
func TestNonFilterOrMissingProgramStopsRun(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		by     By
		each   Each
		script string
		err    string
	}{
		"gone, pipe":           {ByPipe, EachShard, `rm -f "$0"; exit 3`, "nothing more can be filtered until it starts again"},
		"gone, dirs":           {ByDirs, EachUnit, `rm -f "$0"; exit 3`, "nothing more can be filtered until it starts again"},
		"gone, process":        {ByProcess, EachUnit, `rm -f "$0"; head -c 8 >/dev/null; printf LSIOFSF1; head -c 1 >/dev/null; exit 3`, "nothing more can be filtered until it starts again"},
		"no protocol, shards":  {ByProcess, EachShard, "exit 0", "has to answer LSIOFSF1"},
		"strange names, whole": {ByDirs, EachShard, `echo x > "$2/other"`, `it made "other" in {out}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := filepath.Join(t.TempDir(), "filter")
			require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755))
			w := newWorld(t, map[string]string{"a.txt": "1\n", "b.txt": "2\n"})
			c := w.config(tt.by, script, "{in}", "{out}")
			c.Each, c.OnFailed, c.Processes = tt.each, FailedSkip, 1
			_, err := w.run(c)
			_, ok := errors.AsType[*HopelessError](err)
			require.True(t, ok, "%v", err)
			require.ErrorContains(t, err, tt.err)
			require.Empty(t, w.made())
		})
	}
}

// A program that crashes on everything is not restarted forever; one that answers occasionally
// continues.
func TestProgramThatAlwaysCrashesStopsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": strings.Repeat("die\n", leastCrashes)})
	c := w.config(ByProcess, upper...)
	c.Processes, c.OnFailed = 1, FailedSkip
	counts, err := w.run(c)
	_, ok := errors.AsType[*HopelessError](err)
	require.True(t, ok, "%v", err)
	require.ErrorContains(t, err, "100 times in a row, the last time on a.txt/")
	require.Less(t, counts.UnitsLost, uint64(leastCrashes/tries), "the last one ends the run")
	require.Empty(t, w.made())

	w = newWorld(t, map[string]string{"a.txt": strings.Repeat(strings.Repeat("die\n", 30)+"a\n", 4)})
	c = w.config(ByProcess, upper...)
	c.Processes, c.OnFailed = 1, FailedSkip
	counts, err = w.run(c)
	require.NoError(t, err)
	require.Equal(t, uint64(120), counts.UnitsLost)
	require.Equal(t, map[string]string{"a.txt": "A\nA\nA\nA\n"}, w.made())
}

// Adjacent samples with the same key are one sample: if a filter makes such samples adjacent, or
// gives samples the same key, the result is rejected.
func TestAdjacentUnitsAreNotMerged(t *testing.T) {
	t.Parallel()
	shard := tarOf(t, member{"a.cls", "1"}, member{"b.cls", "2"}, member{"a.jpg", "3"})
	for name, script := range map[string]string{
		"the one between is dropped": `cp "$0"/* "$1"/; rm "$1"/000000001.tar`,
		"renamed":                    `cd "$0"; for f in *; do tar -xf $f; mv *.cls x.cls 2>/dev/null; mv *.jpg x.jpg 2>/dev/null; tar -cf "$1"/$f x.*; rm x.*; done`,
	} {
		w := newWorld(t, map[string]string{"a.tar": shard})
		c := w.config(ByDirs, "sh", "-c", script, "{in}", "{out}")
		c.Format.Name = "tar"
		_, err := w.run(c)
		require.ErrorContains(t, err, "which are read as 1: ", name)
		require.Empty(t, w.made())
	}
}

// If a program crashes on some units of a batch, only those are skipped.
func TestBatchLosesOnlyUnitsThatCrash(t *testing.T) {
	t.Parallel()
	var text, want strings.Builder
	for i := range 300 {
		line := fmt.Sprintf("line %d\n", i)
		if i == 0 || i == 77 || i == 78 || i == 299 {
			line = fmt.Sprintf("die %d\n", i)
		} else {
			want.WriteString(line)
		}
		text.WriteString(line)
	}
	w := newWorld(t, map[string]string{"a.txt": text.String()})
	c := w.config(ByDirs, "sh", "-c", `cp "$0"/* "$1"/; if grep -qs die "$0"/*; then exit 3; fi`, "{in}", "{out}")
	_, err := w.run(c)
	require.ErrorContains(t, err, "exit status 3 (on this one or another of the 300 units that it was given")
	c.OnFailed = FailedSkip
	counts, err := w.run(c)
	require.NoError(t, err)
	require.Equal(t, uint64(4), counts.UnitsLost)
	require.Equal(t, map[string]string{"a.txt": want.String()}, w.made())

	w = newWorld(t, map[string]string{"a.txt": text.String()})
	c = w.config(ByDirs, "false", "{in}", "{out}")
	c.OnFailed = FailedSkip
	_, err = w.run(c)
	require.ErrorContains(t, err, "100 times in a row, the last time on a.txt/")
	require.Empty(t, w.made())
}

// A file in SRC may become a directory, and vice versa.
func TestObsoleteResultsAreReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "1\n", "b.txt/c.txt": "2\n", "d.txt": "3\n"})
	_, err := w.run(w.config(ByPipe, "cat"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(w.src, "a.txt")))
	require.NoError(t, os.RemoveAll(filepath.Join(w.src, "b.txt")))
	w.write("a.txt/c.txt", "4\n")
	c := w.config(ByPipe, "cat")
	_, err = w.run(c)
	require.ErrorContains(t, err, "delete it if its source is gone (--mirror does so)")
	w.write("b.txt", "5\n")
	c.Mirror = true
	_, err = w.run(c)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a.txt/c.txt": "4\n", "b.txt": "5\n", "d.txt": "3\n"}, w.made())
}

// A game whose name is too long for a file is skipped, by name, with --by dirs, and filtered with
// the other ways.
func TestGameWithLongName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("g", 253) + ".gz"
	w := newWorld(t, map[string]string{"a.tar": tarOf(t, member{"1.gz", game()}, member{long, game()}, member{"3.gz", game()})})
	c := w.config(ByDirs, "sh", "-c", "cp {in}/* {out}")
	c.Format.Name = "lc0"
	_, err := w.run(c)
	require.ErrorContains(t, err, "its name has 256 bytes, and a file's at most 255: filter it with --by process")
	c.OnFailed = FailedSkip
	counts, err := w.run(c)
	require.NoError(t, err)
	require.Equal(t, uint64(2), counts.UnitsOut)
	require.Equal(t, uint64(1), counts.UnitsLost)
	by := w.config(ByProcess, upper...)
	by.Format.Name, by.Name = "lc0", "by process"
	counts, err = w.run(by)
	require.NoError(t, err)
	require.Equal(t, uint64(3), counts.UnitsOut)
}

// A line that is not JSON is rejected in whole shards too, compressed or not.
func TestNonJSONLinesAreRefused(t *testing.T) {
	t.Parallel()
	lines := "{\"a\": true}\n\n[1]"
	for name, text := range map[string]string{"a.jsonl": lines, "a.jsonl.gz": gz(lines)} {
		w := newWorld(t, map[string]string{name: text})
		c := w.config(ByPipe, "cat")
		c.Format.Name = "jsonl"
		_, err := w.run(c)
		require.NoError(t, err)
		c.Command = []string{"sh", "-c", "tr a-z A-Z"}
		if name == "a.jsonl.gz" {
			c.Command = []string{"sh", "-c", "zcat | tr a-z A-Z | gzip"}
		}
		_, err = w.run(c)
		require.ErrorContains(t, err, `line 1: "{\"A\": TRUE}\n" is not a line of JSON`, name)
		c.UnitBytes = 5
		c.Command = []string{"cat"}
		_, err = w.run(c)
		require.NoError(t, err, "it is there")
		c.Name = "anew"
		_, err = w.run(c)
		require.ErrorContains(t, err, "line 1 has more than 5 bytes: raise --unit-bytes")
	}
}

// Replacing the program during a run ends the run: otherwise the ledger would attribute results of
// the new one to the old one. The next run filters everything with the new one.
func TestReplacedProgramStopsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "one\n"})
	program := filepath.Join(t.TempDir(), "program")
	put := func(script string) {
		require.NoError(t, os.WriteFile(program+".new", []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		require.NoError(t, os.Rename(program+".new", program))
	}
	put("tr a-z A-Z")
	c := w.config(ByPipe, program)
	r := w.watch(c)
	r.comes("a.txt", "ONE\n")
	put("tr a-z b-za")
	w.replace("b.txt", "two\n")
	err := <-r.ended
	r.cancel()
	require.ErrorIs(t, err, command.ErrReplaced)
	require.Equal(t, map[string]string{"a.txt": "ONE\n"}, w.made())
	counts, err := w.run(c)
	require.NoError(t, err)
	require.Equal(t, uint64(2), counts.Filtered)
	require.Equal(t, map[string]string{"a.txt": "pof\n", "b.txt": "uxp\n"}, w.made())
}

// A source that can't be read is not a damaged one: it ends the run, even if failures are skipped,
// except while SRC is watched, when it may become readable later.
func TestUnreadableSourceIsNotSkipped(t *testing.T) {
	damage := &Failure{Shard: "a.jsonl", Err: errors.New("the gzip member is damaged"), Source: true}
	var unread []error
	for _, cause := range []error{unix.EACCES, unix.EIO, unix.ESTALE} {
		unread = append(unread, &Failure{Shard: "a.jsonl", Err: fmt.Errorf("read: %w", &fs.PathError{Op: "read", Path: "a.jsonl", Err: cause}), Source: true},
			&Failure{Shard: "a.jsonl", Err: &storage.Error{Object: "a.jsonl", Err: cause}, Source: true})
	}
	for _, watch := range []bool{false, true} {
		r := &run{Config: Config{OnFailed: FailedSkip, Watch: watch, Warn: func(string) {}, Progress: &Progress{}}}
		require.NoError(t, r.lose(&source{}, damage))
		for _, err := range unread {
			if watch {
				require.NoError(t, r.lose(&source{}, err))
			} else {
				require.Equal(t, err, r.lose(&source{}, err))
			}
		}
	}
}

// Another process of the run may ask before the one that crashed last has reported it.
func TestFirstCallerSeesLastCrash(t *testing.T) {
	c, died := newCrashes(1), errors.New("exit status 1")
	for range leastCrashes - 1 {
		require.Equal(t, died, c.add("a.txt/7", died))
		require.NoError(t, c.tooMany())
	}
	c.end()
	for range leastCrashes - 1 {
		require.Equal(t, died, c.add("a.txt/8", died))
	}
	require.NoError(t, c.tooMany())
	said := c.add("a.txt/9", died)
	require.ErrorContains(t, said, "100 times in a row, the last time on a.txt/9: exit status 1")
	require.ErrorIs(t, said, errCrashes)
	require.Equal(t, said, c.tooMany())
	require.Equal(t, c.add("a.txt/9", died), c.tooMany())
	c.end()
	require.NoError(t, c.tooMany())
}

// killedChild filters, and exits, as with kill -9, before the at-th call of its commits.
func killedChild(src, dst, at string) {
	kill, _ := strconv.Atoi(at)
	c := Default()
	c.Source, c.Destination, c.Command, c.Processes, c.Timeout = src, dst, killedFilter, 1, time.Minute
	c.Format.Name = "lines"
	c.Said, c.Warn, c.Round, c.Found = func(string, string) {}, func(string) {}, func(Counts) {}, func(*discover.Selection) {}
	calls := 0
	c.step = func() {
		if calls == kill {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			time.Sleep(time.Hour)
		}
		calls++
	}
	if err := c.Validate(); err != nil {
		panic(err)
	}
	if _, err := Run(context.Background(), c); err != nil {
		panic(err)
	}
	fmt.Println(calls)
}

var killedFilter = []string{"tr", "a-z", "A-Z"}

// A process that is killed between any two calls leaves complete results and nothing else, and the
// next one does only the remaining work.
func TestKilledFilterLosesNothingAndRecordsNoUnfinishedWork(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a.txt": "one\n", "b/b.txt": "two\n", "c.txt": "three\n"}
	want := map[string]string{"a.txt": "ONE\n", "b/b.txt": "TWO\n", "c.txt": "THREE\n"}
	for at := range 14 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, files)
			c := w.config(ByPipe, killedFilter...)
			if at%2 == 1 { // with results of another filter
				before := c
				before.Name = "before"
				_, err := w.run(before)
				require.NoError(t, err)
			}
			out, err := exec.Command(os.Args[0], "killed", w.src, w.dst, strconv.Itoa(at)).CombinedOutput()
			if err != nil {
				require.ErrorContains(t, err, "signal: killed", string(out))
			} else {
				calls, err := strconv.Atoi(string(out[:len(out)-1]))
				require.NoError(t, err, string(out))
				require.LessOrEqual(t, calls, at, "it was to be killed")
			}
			for name, text := range want {
				if made, err := os.ReadFile(filepath.Join(w.dst, name)); err == nil {
					require.Equal(t, text, string(made), "what has a name is whole")
				}
			}
			counts, err := w.run(c)
			require.NoError(t, err)
			require.Equal(t, want, w.made())
			require.Equal(t, uint64(3), counts.Filtered+counts.Unchanged)
			counts, err = w.run(c)
			require.NoError(t, err)
			require.Equal(t, uint64(3), counts.Unchanged)
		})
	}
}

// A process is killed while it replaces the results of another filter, and then the sources vanish:
// its results are deleted too, whichever filter made them.
func TestMirrorDeletesResultsOfKilledFilter(t *testing.T) {
	t.Parallel()
	for at := range 10 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"a.txt": "one\n", "b/b.txt": "two\n", "c.txt": "three\n"})
			c := w.config(ByPipe, killedFilter...)
			before := c
			before.Command = []string{"tr", "a-z", "b-za"}
			_, err := w.run(before)
			require.NoError(t, err)
			// With the highest numbers it is not killed.
			_, _ = exec.Command(os.Args[0], "killed", w.src, w.dst, strconv.Itoa(at)).CombinedOutput()
			require.NoError(t, os.Remove(filepath.Join(w.src, "a.txt")))
			require.NoError(t, os.RemoveAll(filepath.Join(w.src, "b")))
			c.Mirror = true
			_, err = w.run(c)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"c.txt": "THREE\n"}, w.made())
			require.Empty(t, w.warnings)
		})
	}
}
