package diskcache

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const mib = 1 << 20

// fakeClock stands still until it is moved.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers map[chan time.Time]time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Unix(1_800_000_000, 0), timers: map[chan time.Time]time.Time{}}
}

func (c *fakeClock) clock() Clock {
	return Clock{
		Now: func() time.Time {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.now
		},
		After: func(d time.Duration) <-chan time.Time {
			c.mu.Lock()
			defer c.mu.Unlock()
			ch := make(chan time.Time, 1)
			c.timers[ch] = c.now.Add(d)
			return ch
		},
	}
}

func (c *fakeClock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ch, at := range c.timers {
		if !at.After(c.now) {
			ch <- c.now
			delete(c.timers, ch)
		}
	}
}

// due reports whether a timer fires within a time.
func (c *fakeClock) due(within time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.timers {
		if !at.After(c.now.Add(within)) {
			return true
		}
	}
	return false
}

// recount waits for a count that begins after the call.
func recount(t *testing.T, s *Storage) {
	for range 2 {
		n := s.keeper.counts.Load()
		s.keeper.count()
		waitFor(t, func() bool { return s.keeper.counts.Load() > n })
	}
}

func objectsOf(n, bytes int) map[string][]byte {
	files := map[string][]byte{}
	for i := range n {
		files[fmt.Sprint(i)] = random(uint64(i), bytes)
	}
	return files
}

// still is a disk on which nothing changes during a walk over all of it: otherwise what moves from
// one file to another is seen in both.
type still struct {
	kernel
	look *sync.RWMutex // locked for writing by the walk
}

func (s still) write(fd int, p []byte, off int64) error {
	s.look.RLock()
	defer s.look.RUnlock()
	return s.kernel.write(fd, p, off)
}

func (s still) punch(fd int, off, n int64) error {
	s.look.RLock()
	defer s.look.RUnlock()
	return s.kernel.punch(fd, off, n)
}

// The test polls the directory's blocks while several mounts read at random.
func TestCacheStaysWithinItsBound(t *testing.T) {
	const bound = 24 * mib
	numReads := 600
	if testing.Short() {
		numReads = 200
	}
	for _, share := range []int64{0, 8 * mib} {
		for _, mounts := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d mounts, share %d", mounts, share), func(t *testing.T) {
				w := newWorld(t, objectsOf(8, 8*mib))
				var look sync.RWMutex
				var reading, polling sync.WaitGroup
				stop := make(chan struct{})
				highest, want := int64(0), (bound-share)*8/10
				var used atomic.Bool // a busy disk is slow, and what arrives then is not cached: it takes longer
				for m := range mounts {
					s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes, c.disk = bound, share, still{look: &look} })
					objects := w.objects
					reading.Go(func() {
						r := rand.New(rand.NewPCG(uint64(m), 5))
						for i := 0; i < numReads || i < 50*numReads && !used.Load(); i++ {
							path := fmt.Sprint(r.IntN(8))
							off, n := r.IntN(7*mib), 1+r.IntN(mib)
							buf := make([]byte, n)
							require.NoError(t, storage.ReadAt(t.Context(), s, objects[path], buf, int64(off)))
							if i%3 == 0 {
								s.Passed(1, []storage.Block{{Object: objects[path], OffsetBytes: int64(off), SizeBytes: int64(n)}})
							}
						}
					})
				}
				polling.Go(func() {
					for {
						look.Lock()
						highest = max(highest, w.blocks())
						look.Unlock()
						used.Store(highest > want)
						select {
						case <-stop:
							return
						case <-time.After(5 * time.Millisecond):
						}
					}
				})
				reading.Wait()
				close(stop)
				polling.Wait()
				require.LessOrEqual(t, highest, bound+int64(mounts-1)*leastStep+mib)
				require.Greater(t, highest, want, "it is used")
			})
		}
	}
}

func TestCachedObjectsStayCached(t *testing.T) {
	w := newWorld(t, objectsOf(4, 8*mib))
	s := w.open(func(c *Config) { c.BoundBytes = 20 * mib })
	w.read(s, "0", 0, 8*mib)
	w.read(s, "1", 0, 8*mib)
	for range 3 {
		for _, path := range []string{"2", "3"} {
			w.read(s, path, 0, 8*mib)
		}
	}
	require.Zero(t, w.read(s, "0", 0, 8*mib))
	require.Zero(t, w.read(s, "1", 0, 8*mib))
	require.NotZero(t, w.read(s, "3", 0, 8*mib), "newcomers pass through")
}

func TestDoneFreesShare(t *testing.T) {
	const chunkBytes = 300_000 // not a multiple of a page
	w := newWorld(t, objectsOf(4, 6*mib))
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 11*mib+128<<10, 5*mib })
	w.read(s, "0", 0, 6*mib)
	recount(t, s)
	before := w.blocks()
	for round := range 20 { // much more than fits
		path := fmt.Sprint(1 + round%3)
		for i := range 8 {
			require.NotZero(t, w.read(s, path, i*chunkBytes, chunkBytes))
		}
		require.Greater(t, w.blocks(), before+2*mib, "they are kept")
		for i := range 8 {
			require.Zero(t, w.read(s, path, i*chunkBytes+100, 1000), "until they are done")
		}
		for i := range 8 {
			s.Passed(7, []storage.Block{{Object: w.objects[path], OffsetBytes: int64(i * chunkBytes), SizeBytes: chunkBytes}})
		}
		settle(s)
		_, shared, _ := s.room.usage()
		require.EqualValues(t, pageBytes, shared, "%d: all but the last page, whose rest nobody had", round)
		s.Passed(7, []storage.Block{{Object: w.objects[path], OffsetBytes: 8 * chunkBytes, SizeBytes: pageBytes}})
		settle(s)
		// A count that overlaps with changes finds too much rather than too little, until the next
		// one: each round begins with a count that nothing overlaps.
		require.True(t, s.keeper.countNow())
	}
	require.Zero(t, w.read(s, "0", 0, 6*mib), "what is for good has stayed")
	require.Less(t, w.blocks(), before+mib, "the disk is free again")
}

func TestPageSharedByTwoChunksIsFreedWithSecond(t *testing.T) {
	w := newWorld(t, objectsOf(1, mib))
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 32*mib, 32*mib })
	w.read(s, "0", 0, 10_000)
	s.Passed(1, []storage.Block{{Object: w.objects["0"], OffsetBytes: 0, SizeBytes: 5000}})
	settle(s)
	require.Zero(t, w.read(s, "0", 5000, 5000))
	require.NotZero(t, w.read(s, "0", 0, 4096))
	s.Passed(1, []storage.Block{{Object: w.objects["0"], SizeBytes: 4096}}) // what was read again
	settle(s)
	s.Passed(1, []storage.Block{{Object: w.objects["0"], OffsetBytes: 5000, SizeBytes: 12288 - 5000}})
	settle(s)
	_, shared, _ := s.room.usage()
	require.Zero(t, shared)
	require.NotZero(t, w.read(s, "0", 5000, 1))
}

func TestDoneMayPrecedePageWrites(t *testing.T) {
	w := newWorld(t, objectsOf(1, mib))
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 32*mib, 32*mib })
	w.below.Hold()
	done := make(chan error, 1)
	s.Submit([]*storage.Read{{Object: w.objects["0"], Buf: make([]byte, 40_960), Done: func(err error) { done <- err }}})
	w.below.WaitHeld(1)
	s.Passed(1, []storage.Block{{Object: w.objects["0"], OffsetBytes: 0, SizeBytes: 20_480}})
	s.Passed(1, []storage.Block{{Object: w.objects["0"], OffsetBytes: 20_480, SizeBytes: 20_480}})
	w.below.Release()
	require.NoError(t, <-done)
	settle(s)
	_, shared, _ := s.room.usage()
	require.Zero(t, shared)
	require.NotZero(t, w.read(s, "0", 0, 10))
}

// Close frees the share. After a mount that was killed, the next mount makes room.
func TestCloseOrNextMountFreesShare(t *testing.T) {
	w := newWorld(t, objectsOf(4, 6*mib))
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 12*mib, 12*mib })
	w.read(s, "0", 0, 6*mib)
	require.NoError(t, s.Close())
	require.Less(t, w.blocks(), int64(mib))

	s = w.open(func(c *Config) { c.BoundBytes = 13 * mib }) // as if killed with 6 MiB in its share
	w.read(s, "0", 0, 6*mib)
	w.read(s, "1", 0, 6*mib)
	require.NoError(t, s.Close())
	s = w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 13*mib, 6*mib })
	waitFor(t, func() bool {
		w.read(s, "2", 0, 4*mib)
		return w.read(s, "2", 0, 4*mib) == 0
	})
	require.LessOrEqual(t, w.blocks(), int64(14*mib))
}

// The least recently used objects go first.
func TestUnusedObjectsAreEvicted(t *testing.T) {
	old := newWorld(t, objectsOf(3, 4*mib))
	s := old.open(nil)
	for i := range 3 {
		old.read(s, fmt.Sprint(i), 0, 4*mib)
	}
	require.NoError(t, s.Close())
	for i := range 3 {
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		require.NoError(t, os.Chtimes(old.path(fmt.Sprint(i), ".sums"), at, at))
	}
	living := old.open(nil)
	old.read(living, "0", 0, 1) // it is the oldest, and in use

	w := newWorld(t, objectsOf(2, 4*mib))
	w.files["0"], w.files["1"] = random(50, 4*mib), random(51, 4*mib)
	for path, content := range w.files {
		require.NoError(t, os.WriteFile(w.data+"/"+path, content, 0o600))
	}
	w.cache = old.cache
	s = w.open(func(c *Config) { c.BoundBytes = 13 * mib })
	waitFor(t, func() bool {
		w.read(s, "0", 0, 4*mib)
		return w.read(s, "0", 0, 4*mib) == 0
	})
	require.FileExists(t, old.path("0", ".data"), "in use")
	require.NoFileExists(t, old.path("1", ".data"), "used longest ago of the others")
	require.NoFileExists(t, old.path("1", ".sums"))
	require.FileExists(t, old.path("2", ".data"), "there was no need")
	require.Zero(t, old.read(living, "0", 0, 4*mib))
	require.LessOrEqual(t, w.blocks(), int64(13*mib))
}

func TestReserveIsLeftFree(t *testing.T) {
	w := newWorld(t, objectsOf(1, mib))
	s := w.open(func(c *Config) { c.ReserveBytes = 1 << 60 })
	w.read(s, "0", 0, mib)
	require.NotZero(t, w.read(s, "0", 0, mib))
	require.Zero(t, s.Stats().Written)
	s.Fill([]storage.Object{w.objects["0"]})
	err := s.Warm(t.Context())
	require.ErrorIs(t, err, ErrNotFilled)
	require.Regexp(t, `the file system has [0-9.]+ .?i?B free, and the cache leaves 1\.0 EiB free: free some, or set --cache-reserve$`, err.Error())
}

// Bytes that are about to be written count: the reserve is left after they are written.
func TestReserveIsLeftFreeAfterPendingWrites(t *testing.T) {
	r := &room{
		bound: 64 * mib, reserve: 10 * mib, known: true, clock: newFakeClock().clock(),
		space: func() (space, error) { return space{free: 12 * mib}, nil },
		count: func() {}, countNow: func() bool { return false }, clean: func(int64) {},
	}
	require.Equal(t, forGood, r.take(mib, false))
	require.Equal(t, nowhere, r.take(2*mib, false))
	require.Equal(t, forGood, r.take(mib, false))
	require.Equal(t, nowhere, r.take(1, false))
}

func TestGrowthByOthersIsCountedEveryMinute(t *testing.T) {
	w := newWorld(t, objectsOf(3, 6*mib))
	clock := newFakeClock()
	s := w.open(func(c *Config) { c.BoundBytes, c.Clock = 14*mib, clock.clock() })
	other := w.open(nil)
	w.read(other, "0", 0, 6*mib)
	w.read(other, "1", 0, 6*mib)
	require.Less(t, s.Stats().Bytes, int64(mib))
	clock.forward(countEvery)
	waitFor(t, func() bool { return s.Stats().Bytes > 12*mib })
	require.NotZero(t, w.read(s, "2", 0, 6*mib))
	require.NotZero(t, w.read(s, "2", 0, 6*mib), "there is no room for it")
}

func TestObjectsInUseAreMarkedEveryHour(t *testing.T) {
	w := newWorld(t, objectsOf(1, mib))
	clock := newFakeClock()
	s := w.open(func(c *Config) { c.Clock = clock.clock() })
	w.read(s, "0", 0, mib)
	clock.forward(touchEvery)
	waitFor(t, func() bool {
		info, err := os.Stat(w.path("0", ".sums"))
		return err == nil && info.ModTime().Equal(clock.clock().Now())
	})
}

// What passes through the share does not count as growth, however much it is.
func TestTransientPagesAreNotGrowth(t *testing.T) {
	counts := 0
	r := &room{
		bound: 64 * mib, share: 8 * mib, clock: newFakeClock().clock(), punches: true,
		space: func() (space, error) { return space{free: 1 << 40}, nil },
		count: func() {}, countNow: func() bool { counts++; return false }, clean: func(int64) {},
	}
	base, drops := r.counting()
	r.counts(base, drops, 60*mib, false, false)
	for range 1000 {
		require.Equal(t, inShare, r.take(mib, false))
		r.put(inShare, mib, mib)
		r.drop(mib)
		r.gone()
	}
	require.Zero(t, counts)
	used, _, _ := r.usage()
	require.EqualValues(t, 60*mib, used)
}

// A count that may have included what was dropped meanwhile leaves too little room: another one is
// requested, although nothing has arrived since.
func TestOvercountIsRepeated(t *testing.T) {
	asked := 0
	r := &room{
		bound: 64 * mib, share: 8 * mib, clock: newFakeClock().clock(), punches: true,
		space: func() (space, error) { return space{free: 1 << 40}, nil },
		count: func() { asked++ }, countNow: func() bool { return false }, clean: func(int64) {},
	}
	base, drops := r.counting()
	r.counts(base, drops, 56*mib, false, false)
	for range 8 {
		require.Equal(t, inShare, r.take(mib, false))
		r.put(inShare, mib, mib)
	}
	base, drops = r.counting()
	for range 8 {
		r.drop(mib)
		r.gone()
	}
	r.counts(base, drops, 64*mib, false, false) // it has found all of them
	asked = 0
	require.Equal(t, nowhere, r.take(mib, false))
	require.Positive(t, asked)
	base, drops = r.counting()
	r.counts(base, drops, 56*mib, false, false)
	require.Equal(t, inShare, r.take(mib, false))
}

// seen is a disk that calls a function once, when a file of one name has been examined.
type seen struct {
	kernel
	name string
	hook atomic.Pointer[func()]
}

func (d *seen) statAt(dir int, name string) (unix.Stat_t, error) {
	st, err := d.kernel.statAt(dir, name)
	if name == d.name {
		if hook := d.hook.Swap(nil); hook != nil {
			(*hook)()
		}
	}
	return st, err
}

// When room is made for the share, pages of this mount's own share are not mistaken for those of a
// mount that was killed, even if they are freed while their blocks are counted.
func TestPagesFreedDuringCountDoNotEvictOthers(t *testing.T) {
	w := newWorld(t, objectsOf(2, 6*mib))
	disk := &seen{}
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes, c.disk = 11*mib+128<<10, 5*mib, disk })
	disk.name = filepath.Base(w.path("1", ".data"))
	w.read(s, "0", 0, 6*mib)
	done := func() {
		s.Passed(1, []storage.Block{{Object: w.objects["1"], OffsetBytes: 0, SizeBytes: 4 * mib}})
		settle(s)
	}
	bring := func() {
		require.NotZero(t, w.read(s, "1", 0, 4*mib))
		require.Zero(t, w.read(s, "1", 0, 4*mib), "it is in the share")
	}
	trim := func(hook func()) {
		recount(t, s) // so that the keeper has nothing to count
		disk.hook.Store(&hook)
		s.keeper.trim()
	}
	bring()
	trim(done)
	require.NotNil(t, disk.hook.Swap(nil), "with something in the share nothing is looked at")
	done()

	trim(func() {
		require.NotZero(t, w.read(s, "1", 0, 4*mib))
		done()
	})
	require.Nil(t, disk.hook.Load())
	require.Zero(t, w.read(s, "0", 0, 6*mib), "what is for good has stayed")
}

// A cache that is smaller than the dataset is used up to its bound, minus what passes through, by a
// fill whose parts are in transit for long, and by many concurrent reads.
func TestSmallCacheIsFullyUsed(t *testing.T) {
	const objects, good = 8, 44 * mib
	for name, bring := range map[string]func(w *world, s *Storage){
		"a fill": func(w *world, s *Storage) {
			var all []storage.Object
			for i := range objects {
				all = append(all, w.objects[fmt.Sprint(i)])
			}
			s.Fill(all)
			require.ErrorIs(w.t, s.Warm(w.t.Context()), ErrNotFilled)
		},
		"reads": func(w *world, s *Storage) {
			for i := range objects {
				var reads []*storage.Read
				var done sync.WaitGroup
				for off := int64(0); off < 10*mib; off += 256 << 10 {
					done.Add(1)
					reads = append(reads, &storage.Read{Object: w.objects[fmt.Sprint(i)], OffsetBytes: off, Buf: make([]byte, 256<<10), Done: func(error) { done.Done() }})
				}
				s.Submit(reads)
				done.Wait()
				settle(s) // a disk that is slower than these lets them pass through
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objectsOf(objects, 10*mib))
			s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 64*mib, 20*mib })
			bring(w, s)
			settle(s)
			recount(t, s)
			used, shared, _ := s.room.usage()
			require.Greater(t, used-shared, int64(good-9*mib), "shared: %d", shared)
			require.LessOrEqual(t, w.blocks(), int64(64*mib))
		})
	}
}
