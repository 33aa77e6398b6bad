package diskcache

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/uring"
)

func TestSuite(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"room for all":        func(*Config) {},
		"room for nothing":    func(c *Config) { c.BoundBytes = 1 },
		"all passes through":  func(c *Config) { c.BoundBytes, c.ShareBytes = 1<<30, 1<<30 },
		"one file, 32 KiB":    func(c *Config) { c.MaxFiles, c.MaxReadBytes, c.BufferBytes = 1, 32<<10, 64<<10 },
		"gaps are read":       func(c *Config) { c.GapBytes = 1 << 20 },
		"nothing is cachable": func(c *Config) { c.Identify = func(storage.Object) (Identity, bool) { return Identity{}, false } },
	} {
		for _, mode := range []uring.Mode{uring.ModePread, uring.ModeUring} {
			if testing.Short() && mode == uring.ModePread && name != "room for all" {
				continue // engine-dependent behaviour shows there
			}
			t.Run(string(mode)+" with "+name, func(t *testing.T) {
				engine, err := uring.Open(mode)
				if err != nil && mode == uring.ModeUring && os.Getenv("CI") != "true" {
					t.Skipf("io_uring is missing here: %v", err)
				}
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, engine.Close()) })
				storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
					root := t.TempDir()
					for path, content := range files {
						full := filepath.Join(root, path)
						require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
						require.NoError(t, os.WriteFile(full, content, 0o600))
					}
					below, err := local.Open(root, engine)
					require.NoError(t, err)
					c := DefaultConfig()
					c.Dir, c.Below, c.Engine, c.Identify, c.BoundBytes = filepath.Join(t.TempDir(), "cache"), below, engine, byPath, 1<<30
					change(&c)
					s, err := Open(c)
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, s.Close()) })
					return s
				})
			})
		}
	}
}

// Reads, streams, mappings and plans go through the cache; what describes objects is the storage's
// below.
func TestACachePassesCapabilitiesOn(t *testing.T) {
	w := newWorld(t, nil)
	want := map[string]storagetest.Passing{
		"StatStable":     storagetest.Passed,
		"Omitted":        storagetest.Passed,
		"Status":         storagetest.Passed,
		"AdjustProfile":  storagetest.Passed,
		"HeldBytes":      storagetest.Passed,
		"OpenSequential": storagetest.Own,
		"Uncached":       storagetest.Own,
		"Hints":          storagetest.Own,
	}
	if w.open(nil).Caps().Mapper != nil { // as far as the directory's file system maps files
		want["Mapper"] = storagetest.Own
	}
	storagetest.RunWrapper(t, func(t *testing.T, below storage.Storage) storage.Storage {
		return w.open(func(c *Config) { c.Below = below })
	}, want)
}

// Each missing page is read once, and no other.
func TestOnlyMissingPagesAreRead(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 100*pageBytes)})
	s := w.open(nil)
	require.EqualValues(t, 1, w.read(s, "a", 10*pageBytes+1, 5))
	require.EqualValues(t, pageBytes, w.bytes.Load(), "widened to its page, no more")
	require.EqualValues(t, 1, w.read(s, "a", 20*pageBytes, 2*pageBytes))
	before := w.bytes.Load()
	require.EqualValues(t, 3, w.read(s, "a", 0, 100*pageBytes), "before, between and behind")
	require.EqualValues(t, 97*pageBytes, w.bytes.Load()-before)

	again := w.open(func(c *Config) { c.Dir += "2"; c.GapBytes = 2 * pageBytes })
	w.read(again, "a", 10*pageBytes, pageBytes)
	w.read(again, "a", 20*pageBytes, 3*pageBytes)
	require.EqualValues(t, 2, w.read(again, "a", 0, 100*pageBytes), "a gap of one page is read, one of three is not")
}

// Mounts that come later share them, and mounts at the same time.
func TestCachedPagesAreSharedByMounts(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 1<<20)})
	first := w.open(nil)
	second := w.open(nil)
	w.read(first, "a", 0, 1<<20)
	require.Zero(t, w.read(second, "a", 0, 1<<20))
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	require.Zero(t, w.read(w.open(nil), "a", 0, 1<<20))
	require.NoError(t, os.WriteFile(filepath.Join(w.data, "a"), random(9, 1<<20), 0o600))
	w.files["a"] = random(9, 1<<20)
	require.NotZero(t, w.read(w.open(nil), "a", 0, 1<<20), "another version is another object")
}

func TestReadsOfSamePagesShareOneRequest(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 1<<20)})
	s := w.open(nil)
	w.below.Hold()
	const readers = 20
	errs := make(chan error, readers)
	bufs := make([][]byte, readers)
	for i := range readers {
		bufs[i] = make([]byte, 100_000)
		s.Submit([]*storage.Read{{Object: w.objects["a"], OffsetBytes: int64(i), Buf: bufs[i], Done: func(err error) { errs <- err }}})
	}
	waitFor(t, func() bool { return s.counts.misses.Load() >= readers*25 }) // pages: all have been announced
	w.below.Release()
	for range readers {
		require.NoError(t, <-errs)
	}
	for i, buf := range bufs {
		require.True(t, bytes.Equal(w.files["a"][i:i+100_000], buf))
	}
	require.EqualValues(t, 1, w.reads.Load())
}

// The error names the range for every reader that wanted it, and the read is repeated for the next
// one.
func TestFailedReadNamesRequestedRange(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 1<<20)})
	s := w.open(nil)
	w.below.Before = func(*storage.Read) error { return errTest }
	err := storage.ReadAt(t.Context(), s, w.objects["a"], make([]byte, 100), 5000)
	require.ErrorIs(t, err, errTest)
	require.EqualError(t, err, "a: bytes [5000, 5100): test")
	w.below.Before = nil
	w.read(s, "a", 5000, 100)
	require.Zero(t, w.read(s, "a", 5000, 100))
}

func TestCancelledReadContinuesForOtherReader(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 1<<20)})
	s := w.open(nil)
	w.below.Hold()
	type outcome struct {
		i   int
		err error
	}
	done := make(chan outcome, 2)
	asked := 0
	for i := range 2 {
		r := &storage.Read{Object: w.objects["a"], Buf: make([]byte, 10_000), Done: func(err error) { done <- outcome{i, err} }}
		if i == 0 {
			r.Wanted = func() bool { asked++; return asked == 1 } // no longer when it is its turn
		}
		s.Submit([]*storage.Read{r})
		waitFor(t, func() bool { return s.counts.misses.Load() >= uint64(3*(i+1)) })
	}
	w.below.Release()
	for range 2 {
		got := <-done
		require.Equal(t, map[int]error{0: storage.ErrUnwanted, 1: nil}[got.i], got.err)
	}
	require.Equal(t, 2, asked, "no is the last question")
}

// The padding is zeros whatever was in memory before: two processes that write a page write the
// same.
func TestLastPageIsPaddedWithZeros(t *testing.T) {
	w := newWorld(t, map[string][]byte{"whole": random(1, pageBytes), "short": random(2, 100)})
	s := w.open(nil)
	w.read(s, "whole", 0, pageBytes)
	w.read(s, "short", 0, 100)
	got, err := os.ReadFile(w.path("short", ".data"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(append(bytes.Clone(w.files["short"]), make([]byte, pageBytes-100)...), got))
}

// slowSums is an engine that holds back the completion of reads of sums until it is told.
type slowSums struct {
	uring.Engine
	hold, tell chan struct{}
}

func (e *slowSums) ReadNow(*uring.Request) bool { return false }

func (e *slowSums) Submit(requests []*uring.Request) {
	for _, r := range requests {
		of := *r
		of.Done = func(n int, err error) {
			select {
			case <-e.hold:
				go func() {
					<-e.tell
					r.Done(n, err)
				}()
			default:
				r.Done(n, err)
			}
		}
		e.Engine.Submit([]*uring.Request{&of})
	}
}

func TestPagesArrivingDuringChecksumReadAreNotReadAgain(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 50_000)})
	slow := &slowSums{hold: make(chan struct{}, 1), tell: make(chan struct{})}
	s := w.open(func(c *Config) { slow.Engine, c.Engine = c.Engine, slow })
	w.read(s, "a", 0, 1) // its files are open now
	slow.hold <- struct{}{}
	late := make(chan error, 1)
	buf := make([]byte, 20_000)
	s.Submit([]*storage.Read{{Object: w.objects["a"], OffsetBytes: 20_000, Buf: buf, Done: func(err error) { late <- err }}})
	waitFor(t, func() bool { return len(slow.hold) == 0 }) // it has found that nothing is cached
	before := w.reads.Load()
	require.NoError(t, storage.ReadAt(t.Context(), s, w.objects["a"], make([]byte, 20_000), 20_000))
	waitFor(t, func() bool { return s.counts.written.Load() >= 6 })
	close(slow.tell)
	require.NoError(t, <-late)
	require.True(t, bytes.Equal(w.files["a"][20_000:40_000], buf))
	require.EqualValues(t, 1, w.reads.Load()-before)
}
