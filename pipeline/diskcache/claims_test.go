package diskcache

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// start submits a read of 1000 bytes of object 0, and does not wait for it.
func (w *world) start(s *Storage, off int64) (ended chan error, buf []byte) {
	ended, buf = make(chan error, 1), make([]byte, 1000)
	s.Submit([]*storage.Read{{Object: w.objects["0"], OffsetBytes: off, Buf: buf, Done: func(err error) { ended <- err }}})
	return ended, buf
}

// refusing is a disk that counts claims that another open file has.
type refusing struct {
	kernel
	refused *atomic.Int64
}

func (d refusing) claim(fd int, off, n int64, locked bool) error {
	err := d.kernel.claim(fd, off, n, locked)
	if err == unix.EAGAIN || err == unix.EACCES {
		d.refused.Add(1)
	}
	return err
}

// Two caches share a directory as two processes do: kernel locks tell their open files apart. If
// the one that fetches fails, the other fetches.
func TestCachesSharingDirectoryReadCommonMissesOnce(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	clock := newFakeClock() // it stands still, so the second waits however slow the machine is
	open := func(c *Config) { c.Clock = clock.clock() }
	first := w.open(open)
	below := w.below
	var refused atomic.Int64
	second := w.open(func(c *Config) { c.Clock, c.disk = clock.clock(), refusing{refused: &refused} })
	var fails atomic.Bool
	below.Before = func(*storage.Read) error {
		w.reads.Add(1)
		if fails.Load() {
			return errTest
		}
		return nil
	}
	both := func(off int64) (a, b chan error, buf []byte) {
		below.Hold()
		a, _ = w.start(first, off)
		below.WaitHeld(1)
		before := refused.Load()
		b, buf = w.start(second, off)
		waitFor(t, func() bool { return refused.Load() > before }) // otherwise it may come when the pages are there
		return a, b, buf
	}

	a, b, buf := both(0)
	early := len(b)
	below.Release()
	require.Zero(t, early, "it waits for the first")
	require.NoError(t, <-a)
	require.NoError(t, <-b)
	require.Equal(t, w.files["0"][:1000], buf)
	require.EqualValues(t, 1, w.reads.Load())

	a, b, buf = both(mib)
	fails.Store(true)
	below.Release()
	require.ErrorIs(t, <-a, errTest)
	fails.Store(false)
	require.NoError(t, <-b)
	require.Equal(t, w.files["0"][mib:][:1000], buf)
	require.EqualValues(t, 3, w.reads.Load())
	settle(first)
	settle(second)
}

// holder returns the file of another process that has claimed pages and does nothing more, because
// it was stopped.
func (w *world) holder(off, n int64) *os.File {
	f, err := os.OpenFile(w.path("0", ".data"), os.O_RDWR, 0)
	require.NoError(w.t, err)
	require.NoError(w.t, kernel{}.claim(int(f.Fd()), off, n, true))
	w.t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestReaderWaitsTwiceItsReadTimeForStoppedProcess(t *testing.T) {
	w := newWorld(t, objectsOf(1, 8*mib))
	clock := newFakeClock()
	s := w.open(func(c *Config) { c.Clock = clock.clock() })
	w.read(s, "0", 0, 1000) // creates the files
	w.holder(mib, 4*mib)
	for i := range int64(3) {
		s.claims.took(time.Second / 2) // as if a read had taken that long
		a, buf := w.start(s, (1+i)*mib)
		waitFor(t, func() bool { // it may begin to wait after the clock has moved
			clock.forward(time.Second)
			return len(a) > 0
		})
		require.NoError(t, <-a)
		require.Equal(t, w.files["0"][(1+i)*mib:][:1000], buf)
		require.EqualValues(t, 2+i, w.reads.Load())
	}
	settle(s)
	s.claims.mu.Lock()
	s.claims.mistrust = clock.clock().Now().Add(mistrustTime)
	s.claims.mu.Unlock()
	require.EqualValues(t, 1, w.read(s, "0", 4*mib, 1000), "others count as stopped: they are not waited for, though the clock stands still")
}

func TestPagesOfKilledProcessAreReadAtOnce(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	clock := newFakeClock()
	s := w.open(func(c *Config) { c.Clock = clock.clock() })
	w.read(s, "0", 0, 1000)
	other := w.holder(mib, mib)
	a, buf := w.start(s, mib)
	require.NoError(t, other.Close()) // as the kernel does
	require.NoError(t, <-a)
	require.Equal(t, w.files["0"][mib:][:1000], buf)
	settle(s)
}

// lockless is a disk without locks of ranges.
type lockless struct{ kernel }

func (lockless) claim(int, int64, int64, bool) error { return unix.EOPNOTSUPP }

func TestWithoutLocksEveryProcessReads(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	clock := newFakeClock()
	open := func(c *Config) { c.Clock, c.disk = clock.clock(), lockless{} }
	first, second := w.open(open), w.open(open)
	w.below.Hold()
	b, _ := w.start(second, 0)
	w.below.WaitHeld(1)
	require.EqualValues(t, 1, w.read(first, "0", 0, 1000))
	w.below.Release()
	require.NoError(t, <-b)
	settle(second)
}

func TestWaitTimeForOtherProcesses(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	var never time.Time
	fresh := &claims{}
	require.True(t, fresh.waits(at(0), at(0), at(0)))
	require.False(t, fresh.waits(at(firstPatience), at(0), at(0)), "before the first read below")

	quick := &claims{}
	quick.took(time.Millisecond)
	require.True(t, quick.waits(at(leastPatience-1), at(0), at(0)))
	require.False(t, quick.waits(at(leastPatience), at(0), at(0)))
	require.True(t, quick.waits(at(leastPatience), at(0), never), "no reader waits")
	require.True(t, quick.waits(at(leastPatience), at(0), at(1)), "a reader came later")

	quick.brought(at(leastPatience))
	require.True(t, quick.waits(at(leastPatience), at(0), at(0)), "others bring something")
	for d := time.Duration(0); d < busyFactor*leastPatience; d += leastPatience / 2 {
		quick.brought(at(d))
		require.True(t, quick.waits(at(d), at(0), at(0)), d)
	}
	require.False(t, quick.waits(at(busyFactor*leastPatience), at(0), at(0)), "but not this")

	slow := &claims{}
	slow.took(time.Second)
	slow.took(time.Millisecond)
	require.True(t, slow.waits(at(1600*time.Millisecond), at(0), at(0)), "one was as slow as that a moment ago")
	for range 30 {
		slow.took(time.Millisecond)
	}
	require.False(t, slow.waits(at(1600*time.Millisecond), at(0), at(0)))

	// Others deliver something now and then, but not this.
	busy := &claims{}
	for d := time.Duration(0); d < mostPatience; d += time.Second {
		require.True(t, busy.waits(at(d), at(0), never), d)
		busy.brought(at(d))
	}
	require.False(t, busy.waits(at(mostPatience), at(0), never))

	// Others deliver nothing at all, and are not waited for again for a while.
	idle := &claims{}
	for d := time.Duration(0); d < idlePatience; d += time.Second {
		require.True(t, idle.waits(at(d), at(0), never), d)
	}
	require.False(t, idle.waits(at(idlePatience), at(0), never))
	require.False(t, idle.waits(at(idlePatience+mistrustTime-1), at(idlePatience+mistrustTime-1), never))
	again := at(idlePatience + mistrustTime)
	require.True(t, idle.waits(again, again, never))
}
