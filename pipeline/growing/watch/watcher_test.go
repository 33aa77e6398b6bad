package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const patience = time.Minute

// told records a watcher's reports: the files that are settled now.
type told struct {
	mu      sync.Mutex
	settled map[string]storage.Object
	times   map[string]int
}

func (f *told) paths() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var paths []string
	for path := range f.settled {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func (f *told) config(t *testing.T, root string, change ...func(*Config)) Config {
	f.settled, f.times = map[string]storage.Object{}, map[string]int{}
	c := Config{
		Root:  root,
		Match: func(path string, isDir bool) bool { return isDir && path != "not here" || filepath.Ext(path) == ".tar" },
		StatStable: func(o storage.Object) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if _, ok := f.settled[o.Path]; ok {
				t.Errorf("%s is told twice", o.Path)
			}
			f.settled[o.Path] = o
			f.times[o.Path]++
		},
		Gone: func(path string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if _, ok := f.settled[path]; !ok {
				t.Errorf("%s is gone, and was never told of", path)
			}
			delete(f.settled, path)
		},
	}
	for _, ch := range change {
		ch(&c)
	}
	return c
}

// still is a watcher that looks only when a test calls it, at times that the test sets.
type still struct {
	*Watcher
	told
	t    *testing.T
	root string
	now  time.Time
}

func newStill(t *testing.T, root string, change ...func(*Config)) *still {
	t.Helper()
	s := &still{t: t, root: root}
	l, err := Open(context.Background(), s.told.config(t, root, change...))
	require.NoError(t, err)
	l.stop()
	<-l.done
	t.Cleanup(func() { require.NoError(t, l.closeHints()) })
	s.Watcher, s.now = l, time.Now()
	return s
}

// after looks at what is due after d has passed.
func (s *still) after(d time.Duration) []string {
	s.t.Helper()
	s.now = s.now.Add(d)
	if s.hints != nil {
		s.hinted(s.now.Add(-time.Minute)) // in case something was reported
	}
	require.NoError(s.t, s.step(context.Background(), s.now, false))
	return s.paths()
}

func (s *still) write(path, data string) { write(s.t, s.root, path, data) }

func write(t *testing.T, root, path, data string) {
	t.Helper()
	full := filepath.Join(root, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
	require.NoError(t, os.WriteFile(full, []byte(data), 0o600))
}

func (s *still) at(path string) string { return filepath.Join(s.root, path) }

// ways runs a test with inotify and with polling: both must give the same result.
func ways(t *testing.T, test func(t *testing.T, change func(*Config), wait time.Duration)) {
	t.Run("inotify", func(t *testing.T) { test(t, func(*Config) {}, time.Second) })
	t.Run("poll", func(t *testing.T) { test(t, func(c *Config) { c.NoHints = true }, DefaultPoll) })
}

func TestFilesSettleOnceNoLongerWritten(t *testing.T) {
	ways(t, func(t *testing.T, change func(*Config), wait time.Duration) {
		s := newStill(t, t.TempDir(), change)
		s.write("a.tar", "a")
		s.write("deep/er/b.tar", "b")
		s.write("c.txt", "no shard")
		s.write("d.tar.tmp", "being written")
		s.write(".hidden/e.tar", "hidden")
		s.write("not here/f.tar", "in a directory that has none")
		require.Empty(t, s.after(wait))
		require.Equal(t, []string{"a.tar", "deep/er/b.tar"}, s.after(wait))
		require.Equal(t, 2, s.Status().Files)
		require.Zero(t, s.Status().Settling)

		w, err := os.OpenFile(s.at("slow.tar"), os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		for range 100 {
			require.NotContains(t, s.after(wait), "slow.tar", "somebody has it open")
		}
		require.Equal(t, 1, s.Status().Settling)
		require.NoError(t, w.Close())
		s.after(wait)
		require.Contains(t, s.after(wait), "slow.tar")

		require.NoError(t, os.Rename(s.at("d.tar.tmp"), s.at("d.tar")))
		require.NoError(t, os.Link(s.at("a.tar"), s.at("linked.tar")))
		require.NoError(t, os.Symlink("a.tar", s.at("symbolic.tar")))
		require.NoError(t, os.Symlink("nothing", s.at("dangling.tar")))
		s.after(wait)
		require.Equal(t, []string{"a.tar", "d.tar", "deep/er/b.tar", "linked.tar", "slow.tar", "symbolic.tar"}, s.after(wait))
	})
}

func TestChangedAndDeletedFilesAreReported(t *testing.T) {
	ways(t, func(t *testing.T, change func(*Config), wait time.Duration) {
		root := t.TempDir()
		for _, path := range []string{"a.tar", "b.tar", "x/c.tar", "x/y/d.tar", "z/e.tar"} {
			write(t, root, path, "before")
		}
		s := newStill(t, root, change)
		s.after(wait)
		require.Len(t, s.after(wait), 5)

		require.NoError(t, os.Remove(s.at("a.tar")))
		require.NoError(t, os.RemoveAll(s.at("x/y")))
		require.Equal(t, []string{"b.tar", "x/c.tar", "z/e.tar"}, s.after(wait))
		require.NoError(t, os.Rename(s.at("x"), s.at("moved")))
		s.after(wait)
		require.Equal(t, []string{"b.tar", "moved/c.tar", "z/e.tar"}, s.after(wait))
		s.write("moved/new.tar", "in it")
		s.after(wait)
		require.Contains(t, s.after(wait), "moved/new.tar")

		// A directory, then a file, is replaced by another one.
		require.NoError(t, os.Rename(s.at("z"), s.at("old")))
		s.write("z/f.tar", "other")
		require.NoError(t, os.Rename(s.at("moved/c.tar"), s.at("b.tar")))
		s.after(wait)
		require.Equal(t, []string{"b.tar", "moved/new.tar", "old/e.tar", "z/f.tar"}, s.after(wait))
		require.Equal(t, 2, s.times["b.tar"])

		// A file replaces a directory, and vice versa.
		require.NoError(t, os.RemoveAll(s.at("z")))
		require.NoError(t, os.Rename(s.at("b.tar"), s.at("z.tar")))
		s.after(wait)
		require.Equal(t, []string{"moved/new.tar", "old/e.tar", "z.tar"}, s.after(wait))
		require.NoError(t, os.Remove(s.at("z.tar")))
		s.write("z.tar/g.tar", "in a directory of that name")
		s.after(wait)
		require.Equal(t, []string{"moved/new.tar", "old/e.tar", "z.tar/g.tar"}, s.after(wait))
	})
}

// Writing to a settled file in place does not change its directory.
func TestRewrittenFileSettlesAgain(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.tar", "before")
	for name, wait := range map[string]time.Duration{"inotify": time.Second, "poll": everythingEvery} {
		t.Run(name, func(t *testing.T) {
			s := newStill(t, root, func(c *Config) { c.NoHints = name == "poll" })
			s.after(wait)
			require.Len(t, s.after(wait), 1)
			f, err := os.OpenFile(s.at("a.tar"), os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			_, err = f.WriteString("more")
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.Empty(t, s.after(wait))
			require.Len(t, s.after(wait), 1)
			require.Equal(t, 2, s.times["a.tar"])
		})
	}
}

func TestKnownFilesAreNotWaitedFor(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.tar", "a")
	first := newStill(t, root)
	first.after(time.Second)
	first.after(time.Second)
	want := first.told.settled["a.tar"]
	again := newStill(t, root, func(c *Config) { c.Known = func(o storage.Object) bool { return o == want } })
	require.Equal(t, []string{"a.tar"}, again.paths())
	other := newStill(t, root, func(c *Config) { c.Known = func(o storage.Object) bool { return o.SizeBytes == 7 } })
	require.Empty(t, other.paths())
}

// Lost reports cost time, but no file.
func TestLostEventsTriggerFullCheck(t *testing.T) {
	s := newStill(t, t.TempDir())
	s.write("x/a.tar", "a")
	s.after(time.Second)
	require.Len(t, s.after(time.Second), 1)
	for i := range 50 {
		s.write(fmt.Sprintf("x/%d.tar", i), "b")
	}
	require.NoError(t, os.Remove(s.at("x/a.tar")))
	s.hints.Take() // simulate the loss
	require.Len(t, s.after(time.Second), 1)
	s.agenda.everything = s.now // as for Changes.All
	s.after(0)
	require.Len(t, s.after(time.Second), 50)
}

func TestUnlistableDirectoryIsAnErrorUntilListable(t *testing.T) {
	s := newStill(t, t.TempDir())
	s.write("x/a.tar", "a")
	s.after(time.Second)
	require.Len(t, s.after(time.Second), 1)
	// The root is replaced by a file, which can't be listed even by root.
	require.NoError(t, os.Rename(s.root, s.root+"-away"))
	require.NoError(t, os.WriteFile(s.root, nil, 0o600))
	require.ErrorContains(t, s.step(context.Background(), s.now, true), "files may be missing")
	require.Error(t, s.Status().Err)
	require.Len(t, s.paths(), 1, "nobody knows that it is gone")
	require.NoError(t, os.Remove(s.root))
	require.NoError(t, os.Rename(s.root+"-away", s.root))
	require.NoError(t, s.step(context.Background(), s.now, true))
	require.NoError(t, s.Status().Err)
	require.Len(t, s.paths(), 1)
	s.write("x/b.tar", "b")
	s.after(time.Second)
	require.Len(t, s.after(time.Second), 2)

	_, err := Open(context.Background(), s.told.config(t, s.at("none")))
	require.ErrorContains(t, err, "listing dataset")
}

// Random arrivals, changes and deletions while the watcher runs; at the end it knows the files that
// a walk finds.
func TestWatcherMatchesDirectoryTree(t *testing.T) {
	for _, noHints := range []bool{false, true} {
		t.Run(fmt.Sprint("poll ", noHints), func(t *testing.T) {
			root := t.TempDir()
			var f told
			l, err := Open(context.Background(), f.config(t, root, func(c *Config) {
				c.NoHints, c.Poll, c.Settle = noHints, 50*time.Millisecond, 50*time.Millisecond
			}))
			require.NoError(t, err)
			churn(t, root, 400)
			want := walk(t, root)
			require.NotEmpty(t, want)
			require.Eventually(t, func() bool {
				require.NoError(t, l.Scan(context.Background()))
				return slices.Equal(want, f.paths())
			}, patience, 20*time.Millisecond)
			require.Equal(t, len(want), l.Status().Files)
			require.NoError(t, l.Close())
			require.ErrorIs(t, l.Scan(context.Background()), errClosed)
		})
	}
}

// A hard link changes only a file's change time.
func TestHardLinkKeepsIdentityIfChangeTimeIsIgnored(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.tar", "a")
	s := newStill(t, root, func(c *Config) { c.NoChangeTimes = true })
	s.after(time.Second)
	require.Len(t, s.after(time.Second), 1)
	require.Zero(t, s.told.settled["a.tar"].Version.ChangeTimeNanos)
	require.NoError(t, os.Link(s.at("a.tar"), s.at(".held")))
	require.Len(t, s.after(everythingEvery), 1)
	require.Equal(t, 1, s.times["a.tar"])
}
