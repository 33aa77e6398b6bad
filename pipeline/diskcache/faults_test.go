package diskcache

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// failing is a disk whose n-th call, counted from 0, fails; with on, all from there on.
type failing struct {
	kernel
	calls atomic.Int64
	n     int64
	on    bool
	err   error
}

func (f *failing) fails() error {
	if i := f.calls.Add(1) - 1; i == f.n || f.on && i > f.n {
		return f.err
	}
	return nil
}

func (f *failing) open(dir int, name string, flags int) (int, error) {
	if err := f.fails(); err != nil {
		return -1, err
	}
	return f.kernel.open(dir, name, flags)
}

func (f *failing) mkdir(dir int, name string) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.kernel.mkdir(dir, name)
}

func (f *failing) unlink(dir int, name string) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.kernel.unlink(dir, name)
}

func (f *failing) stat(fd int) (unix.Stat_t, error) {
	if err := f.fails(); err != nil {
		return unix.Stat_t{}, err
	}
	return f.kernel.stat(fd)
}

func (f *failing) statfs(fd int) (unix.Statfs_t, error) {
	if err := f.fails(); err != nil {
		return unix.Statfs_t{}, err
	}
	return f.kernel.statfs(fd)
}

func (f *failing) truncate(fd int, size int64) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.kernel.truncate(fd, size)
}

func (f *failing) read(fd int, p []byte, off int64) (int, error) {
	if err := f.fails(); err != nil {
		return 0, err
	}
	return f.kernel.read(fd, p, off)
}

// write writes half of the bytes before it fails.
func (f *failing) write(fd int, p []byte, off int64) error {
	if err := f.fails(); err != nil {
		_ = f.kernel.write(fd, p[:len(p)/2], off)
		return err
	}
	return f.kernel.write(fd, p, off)
}

func (f *failing) punch(fd int, off, n int64) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.kernel.punch(fd, off, n)
}

func (f *failing) lock(fd int, how int) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.kernel.lock(fd, how)
}

func (f *failing) claim(fd int, off, n int64, locked bool) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.kernel.claim(fd, off, n, locked)
}

// One call after the other fails, until a run has no failing call left. Readers get the right bytes
// anyway.
func TestAnySystemCallMayFail(t *testing.T) {
	errnos := []unix.Errno{unix.EIO, unix.ENOSPC, unix.EMFILE, unix.ENOENT, unix.EROFS, unix.EOPNOTSUPP}
	if testing.Short() { // one that turns the cache off, one that pauses it, one that is temporary, and a missing file
		errnos = errnos[:4]
	}
	for _, errno := range errnos {
		for _, on := range []bool{false, true} {
			t.Run(errno.Error()+map[bool]string{true: " from then on"}[on], func(t *testing.T) {
				w := newWorld(t, map[string][]byte{"a": random(1, 200_001), "b": random(2, 50_000)})
				failed, refused := 0, 0
				for n := int64(0); ; n++ {
					disk := &failing{n: n, on: on, err: errno}
					w.cache = filepath.Join(t.TempDir(), "cache")
					c := w.config()
					c.disk = disk
					c.BoundBytes, c.ShareBytes = mib, mib
					s, err := Open(c)
					if err != nil {
						refused++
						require.ErrorContains(t, err, w.cache, "it says which directory")
						require.NoError(t, w.below.Close())
						continue
					}
					w.objects = map[string]storage.Object{}
					require.NoError(t, s.List(t.Context(), func(string, bool) bool { return true }, func(o storage.Object) error {
						w.objects[o.Path] = o
						return nil
					}))
					for range 2 {
						w.read(s, "a", 100, 150_000)
						w.read(s, "b", 0, 50_000)
						s.Passed(1, []storage.Block{{Object: w.objects["a"], OffsetBytes: 100, SizeBytes: 50_000}})
					}
					w.read(s, "a", 0, 200_001)
					require.NoError(t, s.Close())
					if disk.calls.Load() <= n {
						break
					}
					failed++
				}
				require.Greater(t, failed, 20)
				require.NotZero(t, refused)
			})
		}
	}
}

// badReads is an engine that fails reads of files.
type badReads struct {
	uring.Engine
	err error
}

func (e *badReads) ReadNow(*uring.Request) bool { return false }

func (e *badReads) Submit(requests []*uring.Request) {
	for _, r := range requests {
		if r.File == nil || r.OffsetBytes < headerBytes {
			e.Engine.Submit([]*uring.Request{r})
			continue
		}
		go r.Done(0, e.err)
	}
}

// One line is logged, and no reader waits.
func TestUnreadableCacheIsDisabled(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 200_001)})
	w.read(w.open(nil), "a", 0, 200_001)
	bad := &badReads{err: unix.EIO}
	s := w.open(func(c *Config) { bad.Engine, c.Engine = c.Engine, bad })
	for range 5 {
		require.NotZero(t, w.read(s, "a", 0, 200_001))
	}
	require.Equal(t, "off", s.Stats().State)
	require.Contains(t, s.Stats().Reason, "input/output error")
	require.Equal(t, 1, w.lines("stops using the cache"))
}

func TestRemovedCacheIsDisabled(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 200_001), "b": random(2, 10_000)})
	s := w.open(nil)
	w.read(s, "a", 0, 200_001)
	require.NoError(t, os.RemoveAll(w.cache))
	w.read(s, "a", 0, 200_001)
	w.read(s, "b", 0, 10_000)
	w.read(s, "b", 0, 10_000)
	require.Equal(t, "off", s.Stats().State)
	require.NoDirExists(t, w.cache, "it is not made again under a running mount")
	require.Equal(t, 1, w.lines("stops using the cache"))
}

// tmpfs mounts a file system with these options.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	privileged(t, "mounting a tmpfs")
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, options))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// Readers get their bytes, one line is logged, and the cache continues when there is room again.
func TestAFullDiskIsLeftAloneForAWhile(t *testing.T) {
	w := newWorld(t, objectsOf(3, 4*mib))
	disk := tmpfs(t, "size=6m,mode=0700")
	w.cache = filepath.Join(disk, "cache")
	clock := newFakeClock()
	s := w.open(func(c *Config) { c.Clock = clock.clock() })
	// statfs, which is called once a second, does not see what fills it.
	w.read(s, "0", 0, 100_000)
	filler := filepath.Join(disk, "filler")
	require.NoError(t, os.WriteFile(filler, make([]byte, 4*mib), 0o600))
	for range 3 {
		w.read(s, "0", 0, 4*mib)
		w.read(s, "1", 0, 4*mib)
	}
	require.Equal(t, "full", s.Stats().State)
	require.Equal(t, 1, w.lines("disk is full"))
	require.Zero(t, w.read(s, "0", 0, 100_000), "what is here is used")

	require.NoError(t, os.Remove(filler))
	clock.forward(pause)
	require.Equal(t, "on", s.Stats().State)
	w.read(s, "0", 0, 4*mib)
	require.Zero(t, w.read(s, "0", 0, 4*mib))
	require.Equal(t, 1, w.lines("disk is full"))
}

func TestReadOnlyDiskDisablesCache(t *testing.T) {
	w := newWorld(t, objectsOf(2, mib))
	disk := tmpfs(t, "size=16m,mode=0700")
	w.cache = filepath.Join(disk, "cache")
	s := w.open(nil)
	w.read(s, "0", 0, 100_000)
	require.NoError(t, s.Close())
	require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	_, err := Open(w.config())
	require.ErrorIs(t, err, unix.EROFS)
	require.NoError(t, w.below.Close())
}

// Its folder is locked, and stays locked.
func TestStoppedNeighbourDoesNotBlock(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 50_000)})
	s := w.open(nil)
	w.read(s, "a", 0, 50_000)
	require.NoError(t, s.Close())
	folder, err := os.Open(filepath.Dir(w.path("a", ".data")))
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(folder.Fd()), unix.LOCK_EX))
	s = w.open(nil)
	require.NotZero(t, w.read(s, "a", 0, 50_000), "it is read below")
	require.NoError(t, folder.Close())
	require.Zero(t, w.read(s, "a", 0, 50_000))
	require.Equal(t, "on", s.Stats().State)
}
