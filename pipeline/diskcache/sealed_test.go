package diskcache

import (
	"bytes"
	"errors"
	"fmt"
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
	pageCache(w.t)
	o := w.objects[path]
	require.Eventually(w.t, func() bool {
		s.seals.state(o).again.Store(0) // no need to wait for seconds
		w.read(s, path, 0, len(w.files[path]))
		sealed := s.seals.of(o)
		return sealed != nil && sealed.left.Load() == 0
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
	require.Nil(t, s.seals.of(w.objects["b.tar"]))
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
				require.Nil(t, s.seals.of(w.objects["a.tar"]))
			}
			require.NoError(t, m.Close())
		})
	}
}

// A page that was damaged before it was checked is not mapped, and ends the seal until it has been
// fetched again.
func TestDamagedPageIsNotMapped(t *testing.T) {
	pageCache(t)
	w := sealWorld(t)
	s := w.open(withSeals)
	w.read(s, "a.tar", 0, 1<<20+77)
	f, err := os.OpenFile(w.path("a.tar", ".data"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damage"), 100*pageBytes)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	o := w.objects["a.tar"]
	require.NoError(t, s.seals.seal(o, s.seals.state(o)))
	m, err := mapNow(s, o)
	require.NoError(t, err)
	_, ok := m.Populate(0, 50*pageBytes)
	require.True(t, ok, "the pages are right")
	_, ok = m.Populate(60*pageBytes+1, 40*pageBytes)
	require.False(t, ok, "one is damaged")
	require.Nil(t, s.seals.of(o))
	m.Drop(0, 50*pageBytes)
	require.NoError(t, m.Close())
	w.sealed(s, "a.tar")
	require.Positive(t, s.Stats().BadPages)
	require.Zero(t, w.read(s, "a.tar", 100*pageBytes, pageBytes))
}

// A file that gets shorter while its mapped pages are checked is no crash.
func TestMappedPagesThatAreGoneAreNotRight(t *testing.T) {
	pageCache(t)
	w := sealWorld(t)
	s := w.open(withSeals)
	w.read(s, "a.tar", 0, 1<<20+77)
	o := w.objects["a.tar"]
	require.NoError(t, s.seals.seal(o, s.seals.state(o)))
	opened, err := mapNow(s, o)
	require.NoError(t, err)
	m := opened.(*sealedMapping)
	pages := run{0, 50}
	_, ok := m.Mapping.Populate(0, pages.bytes())
	require.True(t, ok)
	require.NoError(t, os.Truncate(w.path("a.tar", ".data"), 0))
	require.False(t, s.seals.checkMapped(o, m.sealed, pages, m.Mapping.Bytes()))
	m.Mapping.Drop(0, pages.bytes())
	require.NoError(t, m.Close())
}

// A file that got shorter while it was open is not all of the object, whatever its sums are. A mapping
// of it would end within the object.
func TestObjectWithAShortFileIsNotSealed(t *testing.T) {
	w := sealWorld(t)
	s := w.open(withSeals)
	o := w.objects["a.tar"]
	w.read(s, "a.tar", 0, 1<<20+77)
	require.NoError(t, os.Truncate(w.path("a.tar", ".data"), 8*pageBytes))
	s.seals.put(s.seals.state(o))
	require.ErrorIs(t, s.seals.seal(o, s.seals.state(o)), errNotSealed)
	w.read(s, "a.tar", 0, 1<<20+77)
}

// flushed writes an object's data to the disk, so that sealing it does not take long.
func (w *world) flushed(path string) {
	w.t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(w.t, err)
	require.NoError(w.t, unix.Fdatasync(int(f.Fd())))
	require.NoError(w.t, f.Close())
}

// A later mount maps a complete object at once, and checks only what it maps.
func TestCompleteObjectIsSealedWhenItIsMapped(t *testing.T) {
	pageCache(t)
	w := sealWorld(t)
	s := w.open(nil)
	w.read(s, "a.tar", 0, 1<<20+77)
	w.flushed(w.path("a.tar", ".data"))
	s = w.open(withSeals)
	o := w.objects["a.tar"]
	m, err := mapNow(s, o)
	require.NoError(t, err)
	sealed := s.seals.of(o)
	require.EqualValues(t, 257, sealed.left.Load())
	_, ok := m.Populate(5, 4096)
	require.True(t, ok)
	require.EqualValues(t, 257-2, sealed.left.Load())
	s.mu.Lock()
	s.closeIdle(0)
	s.mu.Unlock()
	_, ok = m.Populate(90*pageBytes, pageBytes)
	require.False(t, ok, "the object's files are not open")
	require.Zero(t, w.read(s, "a.tar", 100*pageBytes, 10), "which opens them, and checks 64 KiB")
	require.EqualValues(t, 257-18, sealed.left.Load())
	_, ok = m.Populate(95*pageBytes, 2*pageBytes)
	require.True(t, ok)
	require.EqualValues(t, 257-19, sealed.left.Load())
	m.Drop(95*pageBytes, 2*pageBytes)
	require.Equal(t, w.files["a.tar"][:2*pageBytes], m.Bytes()[:2*pageBytes])
	require.NoError(t, m.Check())
	m.Drop(5, 4096)
	require.NoError(t, m.Close())
	require.Equal(t, 1, s.Stats().Sealed)
}

// Pages of a sealed object are checked before they are first read, and not again.
func TestPagesOfSealedObjectAreCheckedOnce(t *testing.T) {
	pageCache(t)
	for name, n := range map[string]int{"small reads": 10, "large reads": 128 << 10} {
		t.Run(name, func(t *testing.T) {
			w := sealWorld(t)
			s := w.open(nil)
			w.read(s, "a.tar", 0, 1<<20+77)
			write := func(ending string, at int64, b []byte) {
				f, err := os.OpenFile(w.path("a.tar", ending), os.O_RDWR, 0)
				require.NoError(t, err)
				_, err = f.WriteAt(b, at)
				require.NoError(t, err)
				require.NoError(t, f.Close())
			}
			write(".data", 200*pageBytes, []byte("damage"))
			s = w.open(withSeals)
			o := w.objects["a.tar"]
			require.NoError(t, s.seals.seal(o, s.seals.state(o)))
			require.Zero(t, w.read(s, "a.tar", 64*pageBytes, n))
			require.Zero(t, s.Stats().BadPages)
			write(".sums", sumsAt(64), make([]byte, 32*sumBytes))
			require.Zero(t, w.read(s, "a.tar", 64*pageBytes, n), "their sums are not looked at any more")
			require.NotNil(t, s.seals.of(o))
			require.Positive(t, w.read(s, "a.tar", 200*pageBytes, n))
			require.EqualValues(t, 1, s.Stats().BadPages)
			w.read(s, "a.tar", 0, 1<<20+77)
		})
	}
}

// Decoded shards are mapped by a mount that finds all of them in the cache.
func TestPresentedShardsAreMapped(t *testing.T) {
	pageCache(t)
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	s := w.open(withSeals)
	keepShards(t, s, 2)
	files, err := filepath.Glob(filepath.Join(w.cache, "v1", "*", "*.data"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, file := range files {
		w.flushed(file)
	}
	p := s.OpenPlain(keptConfig(2, "v1"), func(shard int) storage.Object {
		return storage.Object{Path: fmt.Sprint(shard, ".zst"), SizeBytes: 1000}
	}, func(shard int, _ func([]byte) error) error { return fmt.Errorf("shard %d is decoded", shard) })
	require.NotNil(t, p)
	for shard := range 2 {
		m, err := mapNow(s, p.Object(shard))
		require.NoError(t, err)
		require.True(t, bytes.Equal(decodedBytes(shard, keptShardBytes), readMapped(t, m)))
		require.NoError(t, m.Check())
		require.NoError(t, m.Close())
	}
	require.NoError(t, p.Close())
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
	require.Nil(t, s.seals.of(w.objects["b.tar"]))
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
	o, old, now := w.objects["0"], newSeal(storage.Object{Path: "old"}, 1, func() {}), newSeal(storage.Object{Path: "new"}, 1, func() {})
	s.seals.state(o).now.Store(now)
	s.seals.broken(o, old)
	require.Same(t, now, s.seals.state(o).now.Load())
	s.seals.broken(o, now)
	require.Nil(t, s.seals.state(o).now.Load())
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
	sealed = s.seals.of(w.objects["a.tar"]).file
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
