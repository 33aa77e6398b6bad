package filter

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/filter/command"
	"github.com/lsiofs/lsiofs/pipeline/filter/ledger"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "serve":
		serve()
		return
	case len(os.Args) > 1 && os.Args[1] == "killed":
		killedChild(os.Args[2], os.Args[3], os.Args[4])
		return
	}
	// Each run waits a second to see that no process is writing.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// serve is a filter of the protocol that converts lines to upper case, and obeys some special
// lines.
func serve() {
	in, out := os.Stdin, os.Stdout
	hello := make([]byte, 8)
	_, _ = io.ReadFull(in, hello)
	fmt.Fprint(out, command.Hello)
	for {
		var n4 [4]byte
		if _, err := io.ReadFull(in, n4[:]); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, in, int64(binary.LittleEndian.Uint32(n4[:])))
		var n8 [8]byte
		_, _ = io.ReadFull(in, n8[:])
		unit := make([]byte, binary.LittleEndian.Uint64(n8[:]))
		_, _ = io.ReadFull(in, unit)
		text := string(unit)
		status, reply := byte(command.ReplyBytes), strings.ToUpper(text)
		switch {
		case strings.Contains(text, "drop"):
			status, reply = byte(command.ReplyDrop), ""
		case strings.Contains(text, "fail"):
			status, reply = byte(command.ReplyFailed), "no"
		case strings.Contains(text, "die"):
			os.Exit(1)
		case strings.Contains(text, "empty"):
			reply = ""
		}
		_, _ = out.Write(append(binary.LittleEndian.AppendUint64([]byte{status}, uint64(len(reply))), reply...))
	}
}

// world is a SRC, a DST, and the warnings.
type world struct {
	t        *testing.T
	src, dst string
	mu       sync.Mutex
	warnings []string
}

func newWorld(t *testing.T, files map[string]string) *world {
	w := &world{t: t, src: t.TempDir(), dst: filepath.Join(t.TempDir(), "made")}
	for name, text := range files {
		w.write(name, text)
	}
	return w
}

func (w *world) write(name, text string) {
	path := filepath.Join(w.src, name)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o640))
}

func (w *world) config(by By, argv ...string) Config {
	c := Default()
	c.Source, c.Destination, c.By, c.Command, c.Processes = w.src, w.dst, by, argv, 3
	c.Format.Name = "lines"
	c.Timeout = time.Minute
	c.Said, c.Round, c.Found = func(string, string) {}, func(Counts) {}, func(*discover.Selection) {}
	c.Warn = func(text string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.warnings = append(w.warnings, text)
	}
	return c
}

func (w *world) run(c Config) (Counts, error) {
	require.NoError(w.t, c.Validate())
	c.Progress = &Progress{}
	return Run(context.Background(), c)
}

// made returns the results, by path. DST must have nothing else except the ledger and its lock.
func (w *world) made() map[string]string {
	files := map[string]string{}
	require.NoError(w.t, filepath.WalkDir(w.dst, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			require.False(w.t, strings.HasPrefix(e.Name(), ledger.TempPrefix), path)
			return err
		}
		if name := e.Name(); strings.HasPrefix(name, ".") {
			require.Contains(w.t, []string{".lsiofs-filter", ".lsiofs-filter-lock"}, name)
			return nil
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(w.dst, path)
		files[rel] = string(text)
		return err
	}))
	return files
}

var upper = []string{os.Args[0], "serve"}

func gz(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// All ways of running a program produce the same dataset from the same shards; running them again
// does nothing, or filters just the shard that changed.
func TestResultsAreShardsUnderSamePaths(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(w *world) Config{
		"pipe": func(w *world) Config { return w.config(ByPipe, "tr", "a-z", "A-Z") },
		"dirs": func(w *world) Config {
			return w.config(ByDirs, "sh", "-c", `for f in "$1"/*; do tr a-z A-Z < "$f" > "$2/${f##*/}"; done`, "sh", "{in}", "{out}")
		},
		"dirs, whole": func(w *world) Config {
			c := w.config(ByDirs, "sh", "-c", `for f in "$1"/*; do tr a-z A-Z < "$f" > "$2/${f##*/}"; done`, "sh", "{in}", "{out}")
			c.Each = EachShard
			return c
		},
		"process":        func(w *world) Config { return w.config(ByProcess, upper...) },
		"process, whole": func(w *world) Config { c := w.config(ByProcess, upper...); c.Each = EachShard; return c },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"a.txt": "one\ntwo\n", "b/c.txt": "three\n", "b/.hidden.txt": "x", "b/half.txt.tmp": "x"})
			old := time.Unix(1_000_000_000, 5000)
			require.NoError(t, os.Chtimes(filepath.Join(w.src, "a.txt"), old, old))
			want := map[string]string{"a.txt": "ONE\nTWO\n", "b/c.txt": "THREE\n"}
			counts, err := w.run(c(w))
			require.NoError(t, err)
			require.Equal(t, want, w.made())
			require.Equal(t, uint64(2), counts.Filtered)
			require.Equal(t, uint64(3), counts.Records)
			info, err := os.Stat(filepath.Join(w.dst, "a.txt"))
			require.NoError(t, err)
			require.Equal(t, old.UnixNano(), info.ModTime().UnixNano(), "what was older stays older")
			require.Equal(t, fs.FileMode(0o640), info.Mode().Perm())

			counts, err = w.run(c(w))
			require.NoError(t, err)
			require.Equal(t, Counts{Shards: 2, Unchanged: 2, Passed: 2, Bytes: 14, Total: 14}, counts)

			w.write("b/c.txt", "four\n")
			counts, err = w.run(c(w))
			require.NoError(t, err)
			require.Equal(t, uint64(1), counts.Filtered)
			want["b/c.txt"] = "FOUR\n"
			require.Equal(t, want, w.made())

			// A result that was changed or deleted is made again, and another filter makes all of
			// them again.
			require.NoError(t, os.WriteFile(filepath.Join(w.dst, "a.txt"), []byte("other"), 0o644))
			require.NoError(t, os.Remove(filepath.Join(w.dst, "b/c.txt")))
			counts, err = w.run(c(w))
			require.NoError(t, err)
			require.Equal(t, uint64(2), counts.Filtered)
			require.Equal(t, want, w.made())
			again := c(w)
			again.Name = "v2"
			counts, err = w.run(again)
			require.NoError(t, err)
			require.Equal(t, uint64(2), counts.Filtered)
		})
	}
}

func TestUnitsStayInOrder(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	w := newWorld(t, map[string]string{"a.txt.gz": gz(lines.String()), "b.txt": lines.String()})
	for _, c := range []Config{w.config(ByProcess, upper...), w.config(ByDirs, "sh", "-c", "cp $0/* $1/", "{in}", "{out}")} {
		counts, err := w.run(c)
		require.NoError(t, err)
		require.Equal(t, uint64(10000), counts.UnitsOut)
		want := lines.String()
		if c.By == ByProcess {
			want = strings.ToUpper(want)
		}
		made := w.made()
		require.Equal(t, want, made["b.txt"])
		z, err := gzip.NewReader(strings.NewReader(made["a.txt.gz"]))
		require.NoError(t, err)
		text, err := io.ReadAll(z)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
}

func TestFilterFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text, err, kept string
		lost            uint64
	}{
		"status 2":        {"a\nfail\nb\n", `a.txt/1: the filter failed on it: "no"`, "A\nB\n", 1},
		"a crash":         {"a\nb\ndie\n", "a.txt/2: its answer is not complete: it ended: exit status 1", "A\nB\n", 1},
		"a bad result":    {"empty\na\n", "a.txt/0: the filter's result is refused: it has no line", "A\n", 1},
		"several":         {"fail\ndie\na\ndrop\nfail\n", "a.txt/", "A\n", 3},
		"a whole shard":   {"fail\nfail\n", "a.txt/", "", 2},
		"dropped, all":    {"drop\ndrop\n", "", "", 0},
		"dropped and bad": {"drop\nfail\n", "a.txt/1", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"a.txt": tt.text})
			c := w.config(ByProcess, upper...)
			_, err := w.run(c)
			if tt.err == "" {
				require.NoError(t, err)
				require.Empty(t, w.made())
				counts, err := w.run(c)
				require.NoError(t, err)
				require.Equal(t, uint64(1), counts.Unchanged)
				return
			}
			failure, ok := errors.AsType[*Failure](err)
			require.True(t, ok, "%v", err)
			require.False(t, failure.Source)
			require.ErrorContains(t, err, tt.err)
			require.Empty(t, w.made())
			c.OnFailed = FailedSkip
			counts, err := w.run(c)
			require.NoError(t, err)
			require.Equal(t, tt.lost, counts.UnitsLost)
			if tt.kept == "" {
				require.Empty(t, w.made())
				require.Equal(t, uint64(1), counts.Failed)
				counts, err = w.run(c) // it is tried again
				require.NoError(t, err)
				require.Equal(t, uint64(1), counts.Failed)
				return
			}
			require.Equal(t, map[string]string{"a.txt": tt.kept}, w.made())
			require.Equal(t, uint64(1), counts.Filtered)
		})
	}
}

// A program that fails once, and then succeeds, has not failed.
func TestFailureIsRetriedOnce(t *testing.T) {
	t.Parallel()
	for by, script := range map[By]string{
		ByPipe: `if mkdir $0/once 2>/dev/null; then exit 1; fi; cat`,
		ByDirs: `if mkdir $0/once 2>/dev/null; then exit 1; fi; cp $1/* $2/`,
	} {
		w := newWorld(t, map[string]string{"a.txt": "one\n"})
		argv := []string{"sh", "-c", script, t.TempDir(), "{in}", "{out}"}
		counts, err := w.run(w.config(by, argv...))
		require.NoError(t, err)
		require.Equal(t, uint64(1), counts.Filtered)
		require.Equal(t, map[string]string{"a.txt": "one\n"}, w.made())
	}
}

func TestNonFilterPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "one\n"})
	for _, tt := range []struct {
		c   Config
		err string
	}{
		{w.config(ByProcess, "true"), "has to answer LSIOFSF1"},
		{w.config(ByProcess, "echo", "usage"), `its first bytes are "usage\n"`},
		{w.config(ByDirs, "sh", "-c", "echo x > $1/other", "{in}", "{out}"), `it made "other" in {out}`},
		{w.config(ByDirs, "sh", "-c", "for f in $0/*; do mkdir $1/${f##*/}; done", "{in}", "{out}"), "is not a regular file"},
		{w.config(ByDirs, "sh", "-c", "exit 5", "{in}", "{out}"), "exit status 5"},
		{w.config(ByPipe, "no-such-program"), "not found"},
	} {
		_, err := w.run(tt.c)
		require.ErrorContains(t, err, tt.err)
		if _, statErr := os.Stat(w.dst); statErr == nil {
			require.Empty(t, w.made())
		}
	}
	c := w.config(ByProcess, "true")
	c.OnFailed = FailedSkip
	_, err := w.run(c)
	hopeless, ok := errors.AsType[*HopelessError](err)
	require.True(t, ok, "it would fail on everything: %v", err)
	require.Error(t, hopeless)
}

func TestInvalidDirectories(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "one\n", "sub/b.txt": "two\n"})
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(w.src, link))
	for _, dst := range []string{w.src, w.src + "/sub", w.src + "/new/deep", filepath.Dir(w.src), link, link + "/new"} {
		c := w.config(ByPipe, "cat")
		c.Destination = dst
		_, err := w.run(c)
		require.ErrorIs(t, err, ErrPlaces, dst)
	}
	for _, src := range []string{w.src + "/none", w.src + "/a.txt"} {
		c := w.config(ByPipe, "cat")
		c.Source = src
		_, err := w.run(c)
		require.ErrorIs(t, err, ErrPlaces, src)
	}
}

// The result of a source that was compressed since is written next to the previous one, which is
// named in a warning: a mount of DST rejects the two.
func TestWarnsAboutResultsOfOneShardInTwoCodecs(t *testing.T) {
	t.Parallel()
	for name, mirror := range map[string]bool{"named": false, "mirrored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{"a.txt": "one\n", "b.txt": "two\n"})
			c := w.config(ByPipe, "cat")
			c.Mirror = mirror
			_, err := w.run(c)
			require.NoError(t, err)
			require.NoError(t, os.Remove(filepath.Join(w.src, "a.txt")))
			w.write("a.txt.gz", gz("one\n"))
			_, err = w.run(c)
			require.NoError(t, err)
			if mirror {
				require.Empty(t, w.warnings)
				require.NotContains(t, w.made(), "a.txt")
				return
			}
			require.Equal(t, []string{"DST has a.txt and a.txt.gz, one shard in two codecs: the source of a.txt is gone: delete its result, or run with --mirror"}, w.warnings)
		})
	}
}

// Links in SRC are followed, to files and directories; those that lead into DST, in any way, are
// left out with one warning each, so that no run filters results.
func TestSourceLinksAreFollowedExceptIntoDestination(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "one\n"})
	disk := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(disk, "b.txt"), []byte("two\n"), 0o644))
	_, err := w.run(w.config(ByPipe, "sed", "s/^/1/"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(w.dst, "sub"), 0o755))
	for name, to := range map[string]string{"disk": disk, "made": w.dst, "above": filepath.Dir(w.dst), "sub": w.dst + "/sub", "a-again.txt": w.dst + "/a.txt"} {
		require.NoError(t, os.Symlink(to, filepath.Join(w.src, name)))
	}
	want := map[string]string{"a.txt": "1one\n", "disk/b.txt": "1two\n"}
	for range 2 {
		w.warnings = nil
		_, err := w.run(w.config(ByPipe, "sed", "s/^/1/"))
		require.NoError(t, err)
		require.Equal(t, want, w.made())
		require.ElementsMatch(t, w.leading(), w.warnings)
	}
	w.warnings = nil
	r := w.watch(w.config(ByPipe, "sed", "s/^/1/"))
	w.replace("c.txt", "three\n")
	r.comes("c.txt", "1three\n")
	r.end()
	want["c.txt"] = "1three\n"
	require.Equal(t, want, w.made())
	require.ElementsMatch(t, w.leading(), w.warnings)
}

// leading returns the warnings about paths that lead into DST.
func (w *world) leading() (list []string) {
	for name, to := range map[string]string{"made": "", "above/made": "", "sub": "/sub", "a-again.txt": "/a.txt"} {
		list = append(list, fmt.Sprintf("%s leads to %s, which is in DST: it is left out", filepath.Join(w.src, name), w.dst+to))
	}
	return list
}

func TestForeignFilesAreNotOverwritten(t *testing.T) {
	t.Parallel()
	for _, make := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte("mine"), 0o644) },
		func(path string) error { return os.Mkdir(path, 0o755) },
		func(path string) error { return os.Symlink("elsewhere", path) },
	} {
		w := newWorld(t, map[string]string{"a.txt": "one\n"})
		require.NoError(t, os.MkdirAll(w.dst, 0o755))
		require.NoError(t, make(filepath.Join(w.dst, "a.txt")))
		c := w.config(ByPipe, "cat")
		c.OnFailed = FailedSkip
		_, err := w.run(c)
		require.ErrorContains(t, err, "was not made by a filter")
	}
}

func TestSourcesChangedDuringRunAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "one\n"})
	path := filepath.Join(w.src, "a.txt")
	for _, c := range []Config{
		w.config(ByPipe, "sh", "-c", "echo more >> "+path+"; cat"),
		w.config(ByDirs, "sh", "-c", "echo more >> "+path+"; cp $0/* $1/", "{in}", "{out}"),
	} {
		_, err := w.run(c)
		failure, ok := errors.AsType[*Failure](err)
		require.True(t, ok, "%v", err)
		require.True(t, failure.Source)
		require.ErrorIs(t, err, errChanged)
		require.Empty(t, w.made())
	}
}

func TestResultsOfOtherFormatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt.gz": gz("one\n")})
	_, err := w.run(w.config(ByPipe, "zcat"))
	require.ErrorContains(t, err, "the result is not a sound shard of format lines: record 0 at offset 0")
	require.Empty(t, w.made())
}

func TestMirrorDeletesObsoleteResults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a/b/c.txt": "1\n", "d.txt": "2\n", "e.txt": "3\n", "f.txt": "drop\n"})
	c := w.config(ByProcess, upper...)
	c.Mirror = true
	_, err := w.run(c)
	require.NoError(t, err)
	require.Len(t, w.made(), 3)
	require.NoError(t, os.RemoveAll(filepath.Join(w.src, "a")))
	require.NoError(t, os.Remove(filepath.Join(w.src, "d.txt")))
	require.NoError(t, os.Remove(filepath.Join(w.src, "f.txt")))
	require.NoError(t, os.WriteFile(filepath.Join(w.dst, "d.txt"), []byte("changed"), 0o644))
	counts, err := w.run(c)
	require.NoError(t, err)
	require.Equal(t, uint64(1), counts.Removed)
	require.Equal(t, map[string]string{"e.txt": "3\n", "d.txt": "changed"}, w.made(), "what the filter did not make stays")
	require.NoDirExists(t, filepath.Join(w.dst, "a"))
	require.Len(t, w.warnings, 1)

	require.NoError(t, os.Remove(filepath.Join(w.src, "e.txt")))
	_, err = w.run(c)
	var none *NoShardsError
	require.ErrorAs(t, err, &none)
	require.Contains(t, w.made(), "e.txt", "an empty SRC may not be mounted")
}

func TestValidateReportsAllProblems(t *testing.T) {
	t.Parallel()
	c := Default()
	c.By, c.Each, c.OnFailed, c.UnitBytes, c.Timeout, c.Poll, c.Settle = "x", "y", "z", 0, 0, -1, -1
	c.Source = "s3://bucket/x"
	err := c.Validate()
	for _, text := range []string{"--by (x)", "--each (y)", "--on-failed (z)", "--unit-bytes (0)", "--timeout (0s)", "--poll (-1ns)", "--settle (-1ns)", "--processes (0)", "no command", "filters work on directories"} {
		require.ErrorContains(t, err, text)
	}
	c = Default()
	c.By, c.Command, c.Processes = ByDirs, []string{"x"}, 1
	require.ErrorContains(t, c.Validate(), "needs {in} and {out}")
	c.By, c.Each = ByPipe, EachUnit
	require.ErrorContains(t, c.Validate(), "would be slow")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	a, b := ledger.Sum{1}, ledger.Sum{2}
	entry := ledger.Entry{Source: a, Filter: b, Result: ledger.Sum{3}}
	none := ledger.Entry{Source: a, Filter: b, Result: ledger.Nothing}
	for name, tt := range map[string]struct {
		found found
		want  verdict
	}{
		"new":                      {found{}, isToDo},
		"a file of others":         {found{presence: aFile}, isOthers},
		"a directory":              {found{presence: aStranger}, isOthers},
		"a directory, later":       {found{entry: entry, known: true, presence: aStranger}, isOthers},
		"done":                     {found{entry: entry, known: true, presence: aFile, sum: ledger.Sum{3}}, isDone},
		"killed before its name":   {found{entry: entry, known: true}, isToDo},
		"another file":             {found{entry: entry, known: true, presence: aFile, sum: ledger.Sum{4}}, isToDo},
		"nothing is left":          {found{entry: none, known: true}, isDone},
		"nothing, and a file":      {found{entry: none, known: true, presence: aFile, sum: ledger.Sum{3}}, isToDo},
		"another source":           {found{entry: ledger.Entry{Source: b, Filter: b}, known: true, presence: aFile}, isToDo},
		"another filter":           {found{entry: ledger.Entry{Source: a, Filter: a}, known: true, presence: aFile}, isToDo},
		"another filter, no file":  {found{entry: ledger.Entry{Source: a, Filter: a, Result: ledger.Nothing}, known: true}, isToDo},
		"an empty file of nothing": {found{entry: none, known: true, presence: aFile, sum: ledger.Nothing}, isToDo},
	} {
		require.Equal(t, tt.want, decide(a, b, tt.found), name)
	}
}

// A run that is interrupted, or whose program hangs, ends, and leaves no files behind.
func TestInterruptedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	for by, argv := range map[By][]string{
		ByPipe: {"sleep", "3600"}, ByDirs: {"sh", "-c", "sleep 3600", "{in}", "{out}"}, ByProcess: {"sleep", "3600"},
	} {
		for _, hangs := range []bool{true, false} {
			w := newWorld(t, map[string]string{"a.txt": "one\n", "b.txt": "two\n"})
			c := w.config(by, argv...)
			ctx, cancel := context.WithCancel(context.Background())
			if hangs {
				c.Timeout = 10 * time.Millisecond
			} else {
				time.AfterFunc(1500*time.Millisecond, cancel) // whatever it is doing by then
			}
			require.NoError(t, c.Validate())
			_, err := Run(ctx, c)
			if hangs {
				require.ErrorContains(t, err, "longer than --timeout")
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
			cancel()
			require.Empty(t, w.made())
		}
	}
}

// A unit that is too large is named, and skipped if failures are.
func TestLargeUnitIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "one\nlonger than ten\ntwo\n"})
	c := w.config(ByProcess, upper...)
	c.UnitBytes = 10
	_, err := w.run(c)
	require.ErrorContains(t, err, "a.txt/1: it has 16 bytes, of at most 10: raise --unit-bytes")
	c.OnFailed = FailedSkip
	counts, err := w.run(c)
	require.NoError(t, err)
	require.Equal(t, uint64(1), counts.UnitsLost)
	require.Equal(t, map[string]string{"a.txt": "ONE\nTWO\n"}, w.made())
}
