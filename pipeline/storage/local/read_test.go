package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Covers both cases: the file is opened after the change, and it was open already.
func TestFilesChangedAfterListing(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	cases := []struct {
		name   string
		change func(t *testing.T, path string)
		// expected errors if the file was closed, and if it was open; "" means none
		closed, open string
	}{
		{"is truncated", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 5000)) },
			"size is 5000 bytes, was 10000", "size is 5000 bytes, was 10000"},
		{"grows", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 20_000)) },
			"size is 20000 bytes, was 10000", "size is 20000 bytes, was 10000"},
		{"is touched", func(t *testing.T, path string) { require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1, 1))) },
			"modification time differs", "modification time differs"},
		{"is removed", func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
			"the file is gone", ""},
		{"is replaced", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".new", []byte(strings.ToUpper(long)), 0o600))
			require.NoError(t, os.Chtimes(path+".new", time.Time{}, info.ModTime()))
			require.NoError(t, os.Rename(path+".new", path))
		}, "another file is in its place", ""},
		{"is a directory now", func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Mkdir(path, 0o700))
		}, "not a regular file any more", ""},
		{"is a pipe now", func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, unix.Mkfifo(path, 0o600))
		}, "not a regular file any more", ""},
	}
	for _, c := range cases {
		for _, wasOpen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, open %v", c.name, wasOpen), func(t *testing.T) {
				root := t.TempDir()
				write(t, root, "dir/shard", long)
				s := openAt(t, root, 10)
				o := listAll(t, s)["dir/shard"]
				want := c.closed
				if wasOpen {
					require.Equal(t, long, read(t, s, o))
					want = c.open
				}
				c.change(t, filepath.Join(root, "dir/shard"))
				p := make([]byte, 100)
				err := storage.ReadAt(t.Context(), s, o, p, 4000)
				if want == "" {
					require.NoError(t, err, "the open file is still what was listed")
					require.Equal(t, long[4000:4100], string(p))
					return
				}
				require.ErrorIs(t, err, storage.ErrChanged)
				require.EqualError(t, err, "dir/shard: bytes [4000, 4100): "+want+": "+storage.ErrChanged.Error())
			})
		}
	}
}

// interferingEngine runs a function between the opening of a file and its reads.
type interferingEngine struct {
	uring.Engine
	interfere func()
}

func (e *interferingEngine) Submit(requests []*uring.Request) {
	e.interfere()
	e.Engine.Submit(requests)
}

func TestFilesChangedDuringReadReturnErrChanged(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	path := filepath.Join(root, "shard")
	var once sync.Once
	s := openWith(t, root, &interferingEngine{openEngine(t, uring.ModeAuto), func() {
		once.Do(func() { _ = os.Chtimes(path, time.Time{}, time.Unix(1, 1)) })
	}}, 10)
	o := stat(t, s, "shard")
	p := make([]byte, 7)
	require.ErrorIs(t, storage.ReadAt(t.Context(), s, o, p, 0), storage.ErrChanged)
	require.ErrorIs(t, storage.ReadAt(t.Context(), s, o, p, 0), storage.ErrChanged, "it stays changed")
	require.Equal(t, "content", read(t, s, stat(t, s, "shard")), "listed anew it is read")
}

func TestDiskErrorsNameRange(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	s := openWith(t, root, failingEngine{openEngine(t, uring.ModeAuto)}, 10)
	err := storage.ReadAt(t.Context(), s, stat(t, s, "shard"), make([]byte, 3), 2)
	require.ErrorIs(t, err, unix.EIO)
	require.EqualError(t, err, "shard: bytes [2, 5): input/output error")
	require.NotErrorIs(t, err, storage.ErrChanged)
}

// failingEngine is a broken disk.
type failingEngine struct{ uring.Engine }

func (e failingEngine) Submit(requests []*uring.Request) {
	for _, r := range requests {
		done := r.Done
		r.Done = func(int, error) { done(0, unix.EIO) }
	}
	e.Engine.Submit(requests)
}

// manyFiles creates n files, each with different contents.
func manyFiles(t *testing.T, root string, n int) map[string]string {
	contents := make(map[string]string)
	for i := range n {
		path := fmt.Sprintf("shard-%d", i)
		contents[path] = fmt.Sprintf("this is shard %d", i)
		write(t, root, path, contents[path])
	}
	return contents
}

// readAllFiles reads every object several times, all at the same time.
func readAllFiles(t *testing.T, s *Storage, contents map[string]string, times int) {
	var reads []*storage.Read
	errs := make(chan error, times*len(contents))
	for range times {
		for _, o := range listAll(t, s) {
			r := &storage.Read{Object: o, Buf: make([]byte, o.SizeBytes)}
			r.Done = func(err error) {
				if err == nil && string(r.Buf) != contents[o.Path] {
					err = fmt.Errorf("%s holds %q", o.Path, r.Buf)
				}
				errs <- err
			}
			reads = append(reads, r)
		}
	}
	s.Submit(reads)
	for range reads {
		require.NoError(t, <-errs)
	}
}

func openDescriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestOpenFilesStayWithinLimit(t *testing.T) {
	root := t.TempDir()
	contents := manyFiles(t, root, 200)
	for _, limit := range []int{1, 7, 500} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			before := 0
			most := 0
			var mu sync.Mutex
			var s *Storage
			s = openWith(t, root, &interferingEngine{openEngine(t, uring.ModePread), func() {
				s.files.mu.Lock()
				defer s.files.mu.Unlock()
				mu.Lock()
				defer mu.Unlock()
				most = max(most, s.files.open)
			}}, limit)
			before = openDescriptors(t)
			readAllFiles(t, s, contents, 3)
			require.LessOrEqual(t, most, limit)
			require.Equal(t, before+min(limit, len(contents)), openDescriptors(t), "those used last stay open")
			require.NoError(t, s.Close())
			require.Equal(t, before, openDescriptors(t))
		})
	}
}

func TestMostRecentlyUsedFilesStayOpen(t *testing.T) {
	root := t.TempDir()
	manyFiles(t, root, 4)
	s := openAt(t, root, 3)
	for _, i := range []int{0, 1, 2, 0, 3} {
		o := stat(t, s, fmt.Sprintf("shard-%d", i))
		require.Equal(t, fmt.Sprintf("this is shard %d", i), read(t, s, o))
	}
	var open []string
	for o := range s.files.files {
		open = append(open, o.Path)
	}
	require.ElementsMatch(t, []string{"shard-0", "shard-2", "shard-3"}, open)
}

func TestIdleFilesAreClosedWhenDescriptorsRunOut(t *testing.T) {
	root := t.TempDir()
	contents := manyFiles(t, root, 100)
	s := openAt(t, root, 1000)
	withFreeDescriptors(t, 4, func() { readAllFiles(t, s, contents, 2) })
	readAllFiles(t, s, contents, 1)
}

// Opening a file takes two descriptors for a moment. If many fail because each of them has one of
// the last ones, files are opened one at a time, and none fails.
func TestOpensCompetingForLastDescriptorsAreSerialized(t *testing.T) {
	root := t.TempDir()
	const files = maxOpeners
	contents := manyFiles(t, root, files)
	s := openAt(t, root, 1000)
	open := s.files.openObject
	var mu sync.Mutex
	all := sync.NewCond(&mu)
	first, under := 0, 0
	s.files.openObject = func(o storage.Object) (int, error) {
		mu.Lock()
		under++
		defer func() {
			mu.Lock()
			under--
			mu.Unlock()
		}()
		if first < files { // all of them at the same time
			first++
			all.Broadcast()
			for first < files {
				all.Wait()
			}
			mu.Unlock()
			return -1, fmt.Errorf("open: %w", unix.EMFILE)
		}
		few := under > 1
		mu.Unlock()
		if few {
			return -1, fmt.Errorf("open: %w", unix.EMFILE)
		}
		return open(o)
	}
	readAllFiles(t, s, contents, 1)
}

func TestNoDescriptorsErrorSuggestsFix(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a", "x")
	s := openAt(t, root, 1000)
	o := stat(t, s, "a")
	var err error
	withFreeDescriptors(t, 0, func() { err = storage.ReadAt(t.Context(), s, o, make([]byte, 1), 0) })
	require.ErrorIs(t, err, unix.EMFILE)
	require.ErrorContains(t, err, "a: bytes [0, 1): open: too many open files: raise the limit on open files (ulimit -n)")
	require.Equal(t, "x", read(t, s, o), "it is opened as soon as that is possible")
}

// withFreeDescriptors runs f with only n descriptors left to the process.
func withFreeDescriptors(t *testing.T, n int, f func()) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	// The limit is on numbers, and the lowest free one is used.
	var fill []int
	defer func() {
		for _, fd := range fill {
			_ = unix.Close(fd)
		}
	}()
	next := func() int {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		fill = append(fill, fd)
		return fd
	}
	highest := next()
	for range 200 { // past the gaps
		highest = max(highest, next())
	}
	for range n {
		_ = unix.Close(fill[len(fill)-1])
		fill = fill[:len(fill)-1]
	}
	lowered := limit
	lowered.Cur = uint64(highest) + 1
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &lowered))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	f()
}
