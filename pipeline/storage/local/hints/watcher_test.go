package hints

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const patience = time.Minute

func watching(t *testing.T) (*Watcher, string) {
	t.Helper()
	w, err := New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	root := t.TempDir()
	require.NoError(t, w.Watch(root, ""))
	return w, root
}

func names(c Changes, dir string) []string { return slices.Sorted(maps.Keys(c.Dirs[dir])) }

func write(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
}

// Take includes everything that happened before it: there is nothing to wait for.
func TestEventsNameChangedPaths(t *testing.T) {
	w, root := watching(t)
	at := func(name string) string { return filepath.Join(root, name) }
	changes := w.Take()
	require.True(t, changes.None())
	for name, do := range map[string]func() error{
		"written": func() error { return os.WriteFile(at("written"), []byte("x"), 0o600) },
		"linked":  func() error { return os.Link(at("written"), at("linked")) },
		"symlink": func() error { return os.Symlink("written", at("symlink")) },
		"below":   func() error { return os.Mkdir(at("below"), 0o700) },
	} {
		if name == "linked" {
			write(t, at("written"))
			w.Take()
		}
		require.NoError(t, do())
		changes := w.Take()
		require.Contains(t, changes.Dirs[""], name)
		require.False(t, changes.All)
	}
	require.NoError(t, os.Rename(at("written"), at("moved")))
	require.Equal(t, []string{"moved", "written"}, names(w.Take(), ""))
	require.NoError(t, os.Remove(at("moved")))
	require.Equal(t, []string{"moved"}, names(w.Take(), ""))
	_, err := os.ReadDir(root)
	require.NoError(t, err)
	_, err = os.ReadFile(at("linked"))
	require.NoError(t, err)
	changes = w.Take()
	require.True(t, changes.None(), "reading is no change")
}

func TestEventWakesWaiters(t *testing.T) {
	w, root := watching(t)
	write(t, filepath.Join(root, "a"))
	select {
	case <-w.Wake():
	case <-time.After(patience):
		t.Fatal("no report")
	}
	require.Equal(t, []string{"a"}, names(w.Take(), ""))
}

// A directory that moves is reported under its new name once it is watched under it, and forgetting
// the old name does not end that.
func TestWatchFollowsMovedDirectory(t *testing.T) {
	w, root := watching(t)
	before, after := filepath.Join(root, "before"), filepath.Join(root, "after")
	require.NoError(t, os.Mkdir(before, 0o700))
	require.NoError(t, w.Watch(before, "before"))
	require.NoError(t, os.Rename(before, after))
	changes := w.Take()
	require.Nil(t, changes.Dirs["before"])
	require.Contains(t, changes.Dirs, "before", "the directory itself")
	require.Equal(t, []string{"after", "before"}, names(changes, ""))
	require.NoError(t, w.Watch(after, "after"))
	w.Forget("before")
	write(t, filepath.Join(after, "a"))
	require.Equal(t, []string{"a"}, names(w.Take(), "after"))

	// Another directory gets the first one's name.
	require.NoError(t, os.Mkdir(before, 0o700))
	require.NoError(t, w.Watch(before, "before"))
	require.Equal(t, 3, w.Watches())
	require.NoError(t, os.RemoveAll(after))
	changes = w.Take()
	require.Contains(t, changes.Dirs, "after")
	require.Equal(t, 2, w.Watches())
	w.Forget("after")
	w.Forget("never")
	require.NoError(t, os.RemoveAll(before))
	require.NoError(t, os.Mkdir(before, 0o700))
	require.NoError(t, w.Watch(before, "before"))
	w.Take()
	write(t, filepath.Join(before, "b"))
	require.Equal(t, []string{"b"}, names(w.Take(), "before"))
}

func TestReusedWatchDropsOldDirectory(t *testing.T) {
	w, root := watching(t)
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	require.NoError(t, os.Mkdir(a, 0o700))
	require.NoError(t, os.Mkdir(b, 0o700))
	require.NoError(t, w.Watch(a, "x"))
	require.NoError(t, w.Watch(b, "x"))
	require.Equal(t, 2, w.Watches())
	w.Take()
	write(t, filepath.Join(a, "of a"))
	require.NotContains(t, w.Take().Dirs, "x")
	write(t, filepath.Join(b, "of b"))
	require.Equal(t, []string{"of b"}, names(w.Take(), "x"))
}

func TestNonDirectoryIsNotWatched(t *testing.T) {
	w, root := watching(t)
	write(t, filepath.Join(root, "file"))
	require.ErrorIs(t, w.Watch(filepath.Join(root, "file"), "file"), unix.ENOTDIR)
	require.ErrorIs(t, w.Watch(filepath.Join(root, "none"), "none"), unix.ENOENT)
	require.Equal(t, 1, w.Watches())
}

func TestLostEventsAreReportedOnce(t *testing.T) {
	w, root := watching(t)
	w.mu.Lock()
	watch := w.watches[""]
	w.note(event{watch: watch, name: "a"})
	w.note(event{watch: -1, mask: unix.IN_Q_OVERFLOW})
	w.note(event{watch: watch, name: "b"})
	w.mu.Unlock()
	changes := w.Take()
	require.Equal(t, Changes{All: true}, changes)
	require.EqualValues(t, 1, w.Overflows())
	write(t, filepath.Join(root, "c"))
	require.Equal(t, []string{"c"}, names(w.Take(), ""))
}

// The kernel's own queue overflows while it can't be read.
func TestKernelQueueOverflowIsReported(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	require.NoError(t, err)
	var most int
	_, err = fmt.Sscan(string(text), &most)
	require.NoError(t, err)
	w, root := watching(t)
	w.mu.Lock()
	for i := range most + 100 {
		require.NoError(t, os.Symlink("x", filepath.Join(root, fmt.Sprint(i))))
	}
	w.mu.Unlock()
	require.Equal(t, Changes{All: true}, w.Take())
	require.Positive(t, w.Overflows())
	write(t, filepath.Join(root, "after"))
	require.Equal(t, []string{"after"}, names(w.Take(), ""))
}

// Above the bound, whole directories are reported, so that reports that are not taken stay small.
func TestUncollectedNamesAreBounded(t *testing.T) {
	w, _ := watching(t)
	w.mu.Lock()
	watch := w.watches[""]
	for i := range maxNames + 10 {
		w.note(event{watch: watch, name: fmt.Sprint(i)})
	}
	require.Zero(t, w.names)
	w.mu.Unlock()
	changes := w.Take()
	require.Equal(t, map[string]map[string]struct{}{"": nil}, changes.Dirs)
}

func TestClosedWatcherWatchesNothing(t *testing.T) {
	w, err := New()
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Error(t, w.Watch(t.TempDir(), ""))
	changes := w.Take()
	require.True(t, changes.None())
}

func encoded(watch int32, mask uint32, name string, padding int) []byte {
	p := binary.NativeEndian.AppendUint32(nil, uint32(watch))
	p = binary.NativeEndian.AppendUint32(p, mask)
	p = binary.NativeEndian.AppendUint32(p, 0)
	p = binary.NativeEndian.AppendUint32(p, uint32(len(name)+padding))
	return append(append(p, name...), make([]byte, padding)...)
}

func TestEventsAreParsed(t *testing.T) {
	var got []event
	p := slices.Concat(encoded(1, 8, "name", 12), encoded(2, 16, "", 0), encoded(-1, unix.IN_Q_OVERFLOW, "", 0))
	require.True(t, parse(p, func(e event) { got = append(got, e) }))
	require.Equal(t, []event{{1, 8, "name"}, {2, 16, ""}, {-1, unix.IN_Q_OVERFLOW, ""}}, got)
	for cut := 1; cut < 16; cut++ {
		require.False(t, parse(p[:len(p)-cut], func(event) {}))
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(encoded(1, 8, "name", 12))
	f.Add(encoded(2, 16, "", 0)[:15])
	f.Fuzz(func(t *testing.T, p []byte) {
		bytes := 0
		whole := parse(p, func(e event) { bytes += unix.SizeofInotifyEvent + len(e.name) })
		require.LessOrEqual(t, bytes, len(p))
		require.True(t, whole || len(p) > 0)
	})
}
