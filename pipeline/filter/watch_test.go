package filter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const patience = time.Minute

// watching is a run that watches SRC.
type watching struct {
	*world
	config Config
	cancel context.CancelFunc
	ended  chan error
}

func (w *world) watch(c Config) *watching {
	w.t.Helper()
	c.Watch, c.Progress = true, &Progress{}
	require.NoError(w.t, c.Validate())
	ctx, cancel := context.WithCancel(context.Background())
	r := &watching{w, c, cancel, make(chan error, 1)}
	go func() {
		_, err := Run(ctx, c)
		r.ended <- err
	}()
	return r
}

func (r *watching) end() {
	r.t.Helper()
	r.cancel()
	require.ErrorIs(r.t, <-r.ended, context.Canceled)
}

// until waits until a condition holds. It fails the test if the run ends first.
func (r *watching) until(what string, holds func() bool) {
	r.t.Helper()
	for limit := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		select {
		case err := <-r.ended:
			r.t.Fatalf("%s: it has ended: %v", what, err)
		default:
			require.True(r.t, time.Now().Before(limit), what)
		}
	}
}

func (r *watching) comes(name, text string) {
	r.t.Helper()
	r.until(name+" comes", func() bool {
		b, err := os.ReadFile(filepath.Join(r.dst, name))
		return err == nil && string(b) == text
	})
}

func (r *watching) goes(name string) {
	r.t.Helper()
	r.until(name+" goes", func() bool {
		_, err := os.Lstat(filepath.Join(r.dst, name))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// replace writes a complete file by renaming it.
func (w *world) replace(name, text string) {
	w.write(name+".tmp", text)
	require.NoError(w.t, os.Rename(filepath.Join(w.src, name+".tmp"), filepath.Join(w.src, name)))
}

// While SRC is watched, files are filtered once they are complete, again when they change, and a
// damaged one once it is intact. With the kernel's reports this needs no polling.
func TestWatchFiltersArrivingFiles(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"reports": func(c *Config) { c.Poll = 24 * time.Hour },
		"polling": func(c *Config) { c.Poll, c.noHints = 10*time.Millisecond, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			c := w.config(ByPipe, "cat")
			change(&c)
			r := w.watch(c)
			w.replace("a.txt", "one\n")
			r.comes("a.txt", "one\n")
			f, err := os.OpenFile(filepath.Join(w.src, "slow.txt"), os.O_CREATE|os.O_WRONLY, 0o644)
			require.NoError(t, err)
			_, err = f.WriteString("half\n")
			require.NoError(t, err)
			w.write("b.txt.gz", gz("two\n")[:15]) // can't be decoded yet
			w.write("c.txt", "three\n")
			r.comes("c.txt", "three\n")
			r.until("b.txt.gz fails", func() bool { return r.config.Progress.Counts().Failed == 1 })
			require.NoFileExists(t, filepath.Join(w.dst, "slow.txt"))
			_, err = f.WriteString("whole\n")
			require.NoError(t, err)
			require.NoError(t, f.Close())
			r.comes("slow.txt", "half\nwhole\n")
			w.replace("b.txt.gz", gz("two\n"))
			r.comes("b.txt.gz", gz("two\n"))
			w.replace("a.txt", "changed\n")
			r.comes("a.txt", "changed\n")
			elsewhere := filepath.Join(t.TempDir(), "new")
			require.NoError(t, os.Mkdir(elsewhere, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "d.txt"), []byte("four\n"), 0o644))
			require.NoError(t, os.Rename(elsewhere, filepath.Join(w.src, "new")))
			r.comes("new/d.txt", "four\n")
			r.end()
			require.Len(t, w.made(), 5)
			counts := r.config.Progress.Counts()
			require.Equal(t, uint64(5), counts.Shards)
			require.Equal(t, uint64(6), counts.Filtered)
			require.Equal(t, uint64(1), counts.Failed)
			w.mu.Lock()
			defer w.mu.Unlock()
			require.Equal(t, name == "polling", strings.Contains(strings.Join(w.warnings, "\n"), "SRC is looked at every 10ms"), w.warnings)
		})
	}
}

// A file that is rewritten while the program reads it is filtered again, with its new contents.
func TestFileChangedDuringFilterIsFilteredAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	once := filepath.Join(t.TempDir(), "once")
	c := w.config(ByPipe, "sh", "-c", `b=$(cat); if mkdir "$0" 2>/dev/null; then echo new > "$1/a.txt"; fi; echo "$b"`, once, w.src)
	c.Poll = 24 * time.Hour
	r := w.watch(c)
	w.replace("a.txt", "old\n")
	r.comes("a.txt", "new\n")
	r.end()
	require.Equal(t, uint64(1), r.config.Progress.Counts().Filtered)
	require.Zero(t, r.config.Progress.Counts().Failed)
}

// The first files determine the format of SRC; files of other formats are passed over whenever they
// arrive, and text is not a format here because there is another.
func TestWatchKeepsFormatOfFirstFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.tar": tarOf(t, member{"1.txt", "one"}), "notes": "x\n"})
	c := w.config(ByPipe, "cat")
	c.Format.Name, c.Poll = "auto", 24*time.Hour
	r := w.watch(c)
	r.until("a.tar", func() bool { return r.config.Progress.Counts().Filtered == 1 })
	w.replace("b.jsonl", "{}\n")
	w.replace("c.txt", "text\n")
	sample := tarOf(t, member{"2.txt", "two"})
	w.replace("strange", sample) // names decide, as in a mount
	w.write(".hidden.tar", sample)
	w.write("half.tar.part", sample)
	w.replace("d.tar", sample)
	r.comes("d.tar", sample)
	r.until("the others", func() bool { return r.config.Progress.Counts().Passed == 6 })
	require.NoError(t, os.Remove(filepath.Join(w.src, "b.jsonl")))
	require.NoError(t, os.Remove(filepath.Join(w.src, ".hidden.tar")))
	r.until("two are gone", func() bool { return r.config.Progress.Counts().Passed == 4 })
	r.end()
	require.Len(t, w.made(), 2)
	require.Equal(t, uint64(2), r.config.Progress.Counts().Shards)
}

// If names don't identify the format, every file with a naming of shards is a shard too, whatever
// its contents and whenever it arrives: if damaged, it is named instead of passed over.
func TestWatchNamesDamagedShardInNumberedSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"part-1": "{}\n", "old-1": "x\n"})
	c := w.config(ByPipe, "cat")
	c.Format.Name, c.Poll = "auto", 24*time.Hour
	r := w.watch(c)
	r.comes("part-1", "{}\n")
	r.until("old-1", func() bool { return r.config.Progress.Counts().Passed == 1 })
	w.replace("part-2", "<html>\n")
	r.until("part-2 is named", func() bool { return r.config.Progress.Counts().Failed == 1 })
	w.replace("old-2", "{}\n")
	r.comes("old-2", "{}\n")
	r.until("old-1 is named", func() bool { return r.config.Progress.Counts().Failed == 2 })
	r.end()
	require.Equal(t, map[string]string{"part-1": "{}\n", "old-2": "{}\n"}, w.made())
	require.Len(t, w.warnings, 2)
	require.Contains(t, w.warnings[0], "part-2: ")
	require.Contains(t, w.warnings[1], "old-1: ")
	require.Zero(t, r.config.Progress.Counts().Passed)
}

// A shard that exists in two codecs or under two names is filtered once: the second one is named,
// and waits until the first is gone, even while that one is rewritten.
func TestWatchFiltersDuplicateShardOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second string
		link          bool
		reason        string
	}{
		"compressed later":   {"a.txt", "a.txt.gz", false, "a.txt.gz: it is a.txt in a different codec: remove one of them"},
		"decompressed later": {"a.txt.gz", "a.txt", false, "a.txt: it is a.txt.gz in a different codec: remove one of them"},
		"another codec":      {"a.txt.gz", "a.txt.zst", false, "a.txt.zst: it is a.txt.gz in a different codec: remove one of them"},
		"another name":       {"a.txt", "latest.txt", true, "latest.txt: it is a.txt under another name: remove one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{c.first: "one\n"})
			config := w.config(ByPipe, "cat")
			config.Poll, config.Mirror = 100*time.Millisecond, true
			r := w.watch(config)
			r.comes(c.first, "one\n")
			if c.link {
				require.NoError(t, os.Symlink(c.first, filepath.Join(w.src, c.second)))
			} else {
				w.replace(c.second, "one\n")
			}
			r.until("the second is named", func() bool { return r.config.Progress.Counts().Failed == 1 })
			if !c.link { // otherwise both are rewritten
				w.write(c.first, "two\n")
				r.comes(c.first, "two\n")
			}
			require.Equal(t, []string{c.first}, slices.Collect(maps.Keys(w.made())))
			require.Len(t, w.warnings, 1)
			require.Contains(t, w.warnings[0], c.reason)
			if c.link {
				require.NoError(t, os.Rename(filepath.Join(w.src, c.first), filepath.Join(w.src, c.second)))
			} else {
				require.NoError(t, os.Remove(filepath.Join(w.src, c.first)))
			}
			r.goes(c.first)
			r.comes(c.second, "one\n")
			w.replace("z.txt", "last\n")
			r.comes("z.txt", "last\n")
			r.end()
			require.Len(t, w.made(), 2)
		})
	}
}

// A shard that exists twice when the run begins is named too, and filtered once it exists only
// once.
func TestWatchNamesShardDuplicatedFromStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "one\n", "a.txt.gz": "one\n"})
	c := w.config(ByPipe, "cat")
	c.Poll = 24 * time.Hour
	r := w.watch(c)
	r.until("a warning", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.warnings) > 0 && strings.Contains(w.warnings[0], "a.txt.gz") && strings.Contains(w.warnings[0], "remove one of them")
	})
	require.NoError(t, os.Remove(filepath.Join(w.src, "a.txt.gz")))
	r.comes("a.txt", "one\n")
	r.end()
	require.Len(t, w.made(), 1)
}

// If the first files don't determine the format of SRC, the run waits for others.
func TestWatchWaitsUntilFormatIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"notes": "x\n"})
	c := w.config(ByPipe, "cat")
	c.Format.Name, c.Poll = "auto", 24*time.Hour
	r := w.watch(c)
	r.until("a warning", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.warnings) > 0 && strings.HasSuffix(w.warnings[0], "(waiting for other files)")
	})
	w.replace("b.jsonl", "{}\n")
	r.comes("b.jsonl", "{}\n")
	r.end()
	require.Len(t, w.made(), 1)
}

// With --mirror results are deleted when their sources are gone: results of this run, of an earlier
// one, and those whose sources vanish before they have settled. A file that is rewritten keeps its
// result until the next one is ready.
func TestWatchMirrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "1\n", "b.txt/c.txt": "2\n", "d.txt": "3\n", "e.txt": "4\n"})
	_, err := w.run(w.config(ByPipe, "cat"))
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(w.src, "d.txt")))
	writer, err := os.OpenFile(filepath.Join(w.src, "e.txt"), os.O_WRONLY, 0)
	require.NoError(t, err)
	c := w.config(ByPipe, "cat")
	c.Mirror, c.Poll = true, 10*time.Millisecond
	r := w.watch(c)
	r.goes("d.txt")
	r.until("a.txt is done", func() bool { return r.config.Progress.Counts().Unchanged == 2 })
	require.FileExists(t, filepath.Join(w.dst, "e.txt"), "somebody writes it, and it is there")
	require.NoError(t, os.Remove(filepath.Join(w.src, "e.txt")))
	require.NoError(t, writer.Close())
	r.goes("e.txt")

	require.NoError(t, os.RemoveAll(filepath.Join(w.src, "b.txt"))) // a file replaces a directory
	require.NoError(t, os.Remove(filepath.Join(w.src, "a.txt")))    // and a directory a file
	w.replace("b.txt", "5\n")
	w.write("a.txt/f.txt", "6\n")
	r.comes("b.txt", "5\n")
	r.comes("a.txt/f.txt", "6\n")
	require.NoError(t, os.RemoveAll(filepath.Join(w.src, "a.txt")))
	r.goes("a.txt")

	require.NoError(t, os.Remove(filepath.Join(w.src, "b.txt")))
	r.until("SRC is empty", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.warnings) > 0 && strings.Contains(w.warnings[len(w.warnings)-1], "SRC is empty")
	})
	w.replace("g.txt", "7\n")
	r.comes("g.txt", "7\n")
	r.goes("b.txt")
	r.end()
	require.Equal(t, map[string]string{"g.txt": "7\n"}, w.made())
}

// Results that are in the way of new ones are deleted at once, however rarely they are deleted
// otherwise.
func TestWatchDeletesConflictingResultsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a.txt": "1\n", "b.txt": "2\n"})
	c := w.config(ByPipe, "cat")
	c.Mirror, c.Poll = true, 24*time.Hour
	r := w.watch(c)
	r.comes("a.txt", "1\n")
	r.comes("b.txt", "2\n")
	require.NoError(t, os.Remove(filepath.Join(w.src, "a.txt")))
	w.write("a.txt/c.txt", "3\n")
	r.comes("a.txt/c.txt", "3\n")
	require.NoError(t, os.RemoveAll(filepath.Join(w.src, "a.txt")))
	w.replace("a.txt", "4\n")
	r.comes("a.txt", "4\n")
	r.end()
}

// Each file of a burst is filtered once.
func TestWatchFiltersABurstOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var rounds atomic.Int64
	c := w.config(ByProcess, upper...)
	c.Poll, c.Round = 24*time.Hour, func(Counts) { rounds.Add(1) }
	r := w.watch(c)
	const files = 200
	want := map[string]string{}
	for i := range files {
		name := fmt.Sprintf("%d/%d.txt", i%7, i)
		w.write(name, fmt.Sprintf("line %d\n", i))
		want[name] = fmt.Sprintf("LINE %d\n", i)
	}
	r.until("all of them", func() bool { return r.config.Progress.Counts().Filtered == files })
	r.end()
	require.Equal(t, want, w.made())
	require.Less(t, rounds.Load(), int64(files), "many are filtered together")
}

// The outcome for a file does not apply to the next one with its name; a failed file is due again
// when it changes, and after a while.
func TestArrivals(t *testing.T) {
	t.Parallel()
	a := newArrivals(t.TempDir(), []string{"old"})
	now := time.Now()
	first := storage.Object{Path: "x", SizeBytes: 1, Version: storage.Version{ModTimeNanos: 1, Inode: 7}}
	second := first
	second.Version.ModTimeNanos = 2
	paths := func(at time.Time) (paths []string) {
		for _, f := range a.due(at) {
			paths = append(paths, f.object.Path)
		}
		return paths
	}
	a.settled(first)
	a.judge(first, aShard)
	a.gone("x")
	require.Empty(t, paths(now))
	require.Equal(t, []string{"old", "x"}, a.suspicious())
	a.settled(second)
	require.Equal(t, []string{"old"}, a.suspicious())
	a.judge(first, noShard)
	require.False(t, a.end(first, nil, now))
	require.False(t, a.end(first, &Failure{}, now))
	require.Equal(t, []string{"x"}, paths(now), "that was the first one")

	a.judge(second, aShard)
	shards, passed := a.counts()
	require.Equal(t, [2]uint64{1, 0}, [2]uint64{shards, passed})
	require.True(t, a.end(second, &Failure{}, now))
	require.Empty(t, paths(now))
	require.False(t, a.next().Before(now.Add(time.Minute)))
	require.Equal(t, []string{"x"}, paths(a.next()))
	require.False(t, a.end(second, &Failure{}, now), "it is the same failure")
	require.False(t, a.end(second, nil, now))
	require.Empty(t, paths(now.Add(time.Hour)))
	require.True(t, a.next().IsZero())
	a.gone("x")
	shards, _ = a.counts()
	require.Zero(t, shards)
	a.acquit([]string{"x"})
	require.Equal(t, []string{"old"}, a.suspicious())

	a.settled(first)
	require.False(t, a.end(first, &Failure{Err: errChanged}, now), "the looker is going to tell")
	require.Empty(t, paths(now))
	require.NotEmpty(t, paths(a.next()), "if it does not, it is tried again")
}
