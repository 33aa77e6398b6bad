package diskcache

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

func withSeals(c *Config) { c.noSeals = false }

// sealed waits until an object that is read repeatedly is sealed.
func (w *world) sealed(s *Storage, path string) {
	w.t.Helper()
	o := w.objects[path]
	require.Eventually(w.t, func() bool {
		s.seals.state(o).again.Store(0) // no need to wait for seconds
		w.read(s, path, 0, len(w.files[path]))
		_, is := s.seals.of(o)
		return is
	}, time.Minute, time.Millisecond)
}

func sealWorld(t *testing.T) *world {
	return newWorld(t, map[string][]byte{"a.tar": random(1, 1<<20+77), "b.tar": random(2, 70<<10)})
}

func TestVerifiedCompleteObjectIsReadLikeFile(t *testing.T) {
	w := sealWorld(t)
	s := w.open(withSeals)
	require.Positive(t, w.read(s, "a.tar", 0, 1<<20+77))
	w.sealed(s, "a.tar")
	_, other := s.seals.of(w.objects["b.tar"])
	require.False(t, other)
	hits, bad := s.Stats().Hits, s.Stats().BadPages
	for _, r := range [][2]int{{0, 1 << 20}, {1, 4096}, {1<<20 + 76, 1}, {5000, 300 << 10}} {
		require.Zero(t, w.read(s, "a.tar", r[0], r[1]))
	}
	require.Greater(t, s.Stats().Hits, hits)
	require.Equal(t, bad, s.Stats().BadPages)
	buf := make([]byte, 100)
	require.Error(t, storage.ReadAt(t.Context(), s, w.objects["a.tar"], buf, 1<<20), "behind the object's end, though not the file's")
}

// Whatever changes the file ends the seal, and no reader sees the change.
func TestChangedFileIsUnsealed(t *testing.T) {
	for name, change := range map[string]func(f *os.File, at int64) error{
		"a page is written": func(f *os.File, at int64) error { _, err := f.WriteAt([]byte("damage"), at); return err },
		"a page is dropped": func(f *os.File, at int64) error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, pageBytes)
		},
		"it is cut off": func(f *os.File, at int64) error { return f.Truncate(at) },
		"it is gone":    func(f *os.File, _ int64) error { return os.Remove(f.Name()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := sealWorld(t)
			s := w.open(withSeals)
			w.read(s, "a.tar", 0, 1<<20+77)
			w.sealed(s, "a.tar")
			m, err := mapNow(s, w.objects["a.tar"])
			require.NoError(t, err)
			require.True(t, bytes.Equal(w.files["a.tar"], readMapped(t, m)))
			require.NoError(t, m.Check())

			f, err := os.OpenFile(w.path("a.tar", ".data"), os.O_RDWR, 0)
			require.NoError(t, err)
			require.NoError(t, change(f, 8*pageBytes))
			require.NoError(t, f.Close())
			w.read(s, "a.tar", 0, 1<<20+77) // compares
			if name != "it is gone" {       // an open file keeps its contents
				require.ErrorIs(t, m.Check(), storage.ErrReadAgain)
				_, is := s.seals.of(w.objects["a.tar"])
				require.False(t, is)
			}
			require.NoError(t, m.Close())
		})
	}
}

// A page that was damaged before all pages were checked keeps the object from being sealed until it
// has been fetched again.
func TestDamagedPageIsNotSealed(t *testing.T) {
	w := sealWorld(t)
	s := w.open(withSeals)
	w.read(s, "a.tar", 0, 1<<20+77)
	f, err := os.OpenFile(w.path("a.tar", ".data"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damage"), 100*pageBytes)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	o := w.objects["a.tar"]
	require.ErrorIs(t, s.seals.seal(o, s.seals.state(o)), errNotSealed)
	w.sealed(s, "a.tar")
	w.read(s, "a.tar", 100*pageBytes, pageBytes)
}

func TestIncompleteObjectIsNotSealed(t *testing.T) {
	w := sealWorld(t)
	s := w.open(withSeals)
	o := w.objects["a.tar"]
	require.ErrorIs(t, s.seals.seal(o, s.seals.state(o)), errNotSealed, "nothing of it is here")
	w.read(s, "a.tar", 0, 1<<20)
	require.ErrorIs(t, s.seals.seal(o, s.seals.state(o)), errNotSealed, "its end is not here")
	_, err := mapNow(s, o)
	require.ErrorIs(t, err, errNotSealed)
	require.NotErrorIs(t, err, storage.ErrNotMapped, "it may be, later")
	w.read(s, "a.tar", 1<<20, 77)
	require.NoError(t, s.seals.seal(o, s.seals.state(o)))
	require.NoError(t, s.Close())
	_, err = mapNow(s, o)
	require.Error(t, err)
	require.Error(t, s.seals.seal(o, s.seals.state(o)))
}

func mapNow(s *Storage, o storage.Object) (m storage.Mapping, err error) {
	done := make(chan struct{})
	s.Map(o, func(of storage.Mapping, why error) {
		m, err = of, why
		close(done)
	})
	<-done
	return m, err
}

// readMapped copies a mapping, as far as it is in the page cache: the tests' files are.
func readMapped(t *testing.T, m storage.Mapping) []byte {
	t.Helper()
	n := int64(len(m.Bytes()))
	_, ok := m.Populate(0, n)
	require.True(t, ok)
	defer m.Drop(0, n)
	return bytes.Clone(m.Bytes())
}

func TestLostCopyMustBeReadAgain(t *testing.T) {
	w := sealWorld(t)
	s := w.open(withSeals)
	w.read(s, "b.tar", 0, 70<<10)
	w.sealed(s, "b.tar")
	m, err := mapNow(s, w.objects["b.tar"])
	require.NoError(t, err)
	var of *storage.Error
	lost := m.Lost()
	require.ErrorIs(t, lost, storage.ErrReadAgain)
	require.True(t, errors.As(lost, &of))
	require.Equal(t, "b.tar", of.Object)
	_, is := s.seals.of(w.objects["b.tar"])
	require.False(t, is)
	require.NoError(t, m.Close())
}

// Mounts open the files of one cache for writing. None of them waits for another one that has
// mapped them, and may have been stopped.
func TestCacheWriterWaitsForNoLease(t *testing.T) {
	w := sealWorld(t)
	s := w.open(func(c *Config) { withSeals(c); c.MaxFiles = 1 })
	w.read(s, "a.tar", 0, 1<<20+77)
	w.sealed(s, "a.tar")
	w.read(s, "b.tar", 0, 70<<10) // closes the other one's files, so that it could get a lease
	m, err := mapNow(s, w.objects["a.tar"])
	require.NoError(t, err)
	defer m.Close()
	require.False(t, m.Leased())
	require.Zero(t, s.seals.files.LeaseStats().Held)
}

// The object has been sealed again since.
func TestStaleMappingDoesNotEndNewSeal(t *testing.T) {
	w := newWorld(t, objectsOf(1, mib))
	s := w.open(nil)
	o, old, now := w.objects["0"], storage.Object{Path: "old"}, storage.Object{Path: "new"}
	s.seals.state(o).file.Store(&now)
	s.seals.broken(o, old)
	require.NotNil(t, s.seals.state(o).file.Load())
	s.seals.broken(o, now)
	require.Nil(t, s.seals.state(o).file.Load())
}

// watched is a disk that checks files before their pages are dropped.
type watched struct {
	kernel
	before func(fd int)
}

func (x watched) punch(fd int, off, n int64) error {
	x.before(fd)
	return x.kernel.punch(fd, off, n)
}

// Some file systems (tmpfs) change a file's times only when its pages are gone. Readers of a sealed
// object would find zeros in a file that looks unchanged, so the times change first.
func TestFileLooksChangedBeforeItsPagesAreDropped(t *testing.T) {
	w := sealWorld(t)
	var sealed storage.Object
	looked := 0
	s := w.open(func(c *Config) {
		withSeals(c)
		c.disk = watched{before: func(fd int) {
			if looked++; sealed.Path != "" {
				assert.ErrorIs(t, filesystem.Check(fd, sealed), storage.ErrChanged)
			}
		}}
	})
	w.read(s, "a.tar", 0, 1<<20+77)
	w.sealed(s, "a.tar")
	sealed, _ = s.seals.of(w.objects["a.tar"])
	d, err := OpenDirectory(w.cache, nil) // as another process would
	require.NoError(t, err)
	defer d.Close()
	d.dir.disk = s.dir.disk
	id, _ := byPath(w.objects["a.tar"])
	before := looked
	freed, err := d.dir.trim(keyOf(id, 1<<20+77), 64<<10)
	require.NoError(t, err)
	require.Positive(t, freed)
	require.Greater(t, looked, before)
	w.read(s, "a.tar", 0, 1<<20+77)
}

// The same with a cache in memory, while pages are dropped and read.
func TestDroppedPagesInMemoryAreNotReadAsZeros(t *testing.T) {
	const memory = "/dev/shm"
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) != nil || int64(fs.Type) != unix.TMPFS_MAGIC {
		t.Skip("no tmpfs at " + memory)
	}
	const size = 8 << 20
	w := newWorld(t, map[string][]byte{"a.tar": random(1, size)})
	dir, err := os.MkdirTemp(memory, "lsiofs-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	w.cache = filepath.Join(dir, "cache")
	s := w.open(withSeals)
	o := w.objects["a.tar"]
	id, _ := byPath(o)
	for range 12 {
		w.read(s, "a.tar", 0, size)
		w.sealed(s, "a.tar")
		d, err := OpenDirectory(w.cache, nil)
		require.NoError(t, err)
		var reading sync.WaitGroup
		begun, stop := make(chan struct{}), make(chan struct{})
		reading.Go(func() {
			buf, once := make([]byte, 64<<10), sync.OnceFunc(func() { close(begun) })
			for at := 0; ; at = (at + len(buf)) % size {
				if !assert.NoError(t, storage.ReadAt(t.Context(), s, o, buf, int64(at))) || !assert.True(t, bytes.Equal(w.files["a.tar"][at:at+len(buf)], buf), "at %d", at) {
					once()
					return
				}
				once()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		<-begun
		_, err = d.dir.trim(keyOf(id, size), size)
		require.NoError(t, err)
		close(stop)
		reading.Wait()
		require.NoError(t, d.Close())
		if t.Failed() {
			return
		}
	}
}
