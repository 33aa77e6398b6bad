package diskcache

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

// directoryOf returns the directory of a world's cache, as the commands open it.
func directoryOf(t *testing.T, w *world, d disk) *Directory {
	dir, err := openDirectory(d, w.cache, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(dir.close)
	return &Directory{dir}
}

// hooked calls a function once, when the sums of an object have been read.
type hooked struct {
	kernel
	hook atomic.Pointer[func()]
}

func (d *hooked) read(fd int, p []byte, off int64) (int, error) {
	n, err := d.kernel.read(fd, p, off)
	if off == sumsAt(0) {
		if hook := d.hook.Swap(nil); hook != nil {
			(*hook)()
		}
	}
	return n, err
}

// What a mount drops or removes while a cache is being verified is not damaged.
func TestCacheInUseIsNotReportedAsDamaged(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 64*mib, 64*mib })
	s.Want(1, []storage.Block{{Object: w.objects["0"], SizeBytes: 4 * mib}})
	waitFor(t, func() bool { return s.Stats().Written == 4*mib/pageBytes })
	settle(s)
	disk := &hooked{}
	drop := func() {
		s.Passed(1, []storage.Block{{Object: w.objects["0"], OffsetBytes: 0, SizeBytes: 4 * mib}})
		settle(s)
	}
	disk.hook.Store(&drop)
	require.NoError(t, directoryOf(t, w, disk).Verify(t.Context(), false, func(c Checked) error {
		require.Zero(t, c.BadPages)
		require.Empty(t, c.Damaged)
		return nil
	}))
	require.Nil(t, disk.hook.Load())
	require.NoError(t, s.Close())

	w = newWorld(t, objectsOf(3, mib))
	s = w.open(nil)
	for _, path := range []string{"0", "1", "2"} {
		w.read(s, path, 0, mib)
	}
	require.NoError(t, s.Close())
	d, seen := directoryOf(t, w, kernel{}), 0
	require.NoError(t, d.Verify(t.Context(), false, func(c Checked) error {
		if seen++; seen == 1 {
			_, err := d.Clean(t.Context(), Which{})
			require.NoError(t, err)
		}
		require.Empty(t, c.Damaged)
		return nil
	}))
	require.Positive(t, seen)
}

// endless returns streams that fail where they should end, as the engine of services does when an
// answer has more bytes than the object.
type endless struct {
	*faulty.Storage
	w *world
}

func (s endless) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.OpenSequential = s.OpenSequential
	return c
}

type endlessBody struct{ io.Reader }

func (b endlessBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = errTest
	}
	return n, err
}

func (endlessBody) Close() error { return nil }

func (s endless) OpenSequential(_ context.Context, o storage.Object, off int64) (io.ReadCloser, error) {
	return endlessBody{bytes.NewReader(s.w.files[o.Path][off:])}, nil
}

// A stream that does not end with its object is an error, and its last pages are not kept.
func TestStreamNotEndingWithItsObjectIsAnError(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(func(c *Config) { c.Below = endless{w.below, w} })
	r, err := s.OpenSequential(t.Context(), w.objects["0"], 0)
	require.NoError(t, err)
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, errTest)
	require.NoError(t, r.Close())
	require.Less(t, s.Stats().Written, uint64(4*mib/pageBytes))
}

// Warm returns when all pages are cached, including those that were in transit to others.
func TestWarmWaitsForReadsOfOthers(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	clock := newFakeClock() // Warm checks a few times, and then no more
	s := w.open(func(c *Config) { c.Clock = clock.clock() })
	w.below.Hold()
	s.Want(2, []storage.Block{{Object: w.objects["0"], SizeBytes: 4 * mib, DueBytes: 1 << 30}})
	w.below.WaitHeld(1)
	s.Fill([]storage.Object{w.objects["0"]})
	warm := make(chan error, 1)
	go func() { warm <- s.Warm(t.Context()) }()
	waitFor(t, func() bool { done, total := s.Filled(); return done == total })
	for range 3 * warmRounds { // it checks now and then, and keeps waiting
		waitFor(t, func() bool { return clock.due(warmPause) || len(warm) > 0 })
		require.Empty(t, warm)
		clock.forward(warmPause)
	}
	w.below.Release()
	settle(s)
	waitFor(t, func() bool { clock.forward(warmPause); return len(warm) > 0 })
	require.NoError(t, <-warm)
	require.EqualValues(t, 4*mib/pageBytes, s.Stats().Written)
}

// Warm fills again as long as others have pages in transit. What the fill fetched and could not
// write is counted over all of that, so it is not fetched again every half a second for ever.
func TestWarmStopsIfItsWritesFailWhileOthersRead(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	clock := newFakeClock()
	s := w.open(func(c *Config) { c.Clock = clock.clock() })
	a := s.ahead
	s.PauseFill(true) // the test takes the part of the fill: it loses one of its own flights per round
	w.below.Hold()
	s.Want(2, []storage.Block{{Object: w.objects["0"], SizeBytes: mib, DueBytes: 1 << 30}})
	defer w.below.Release()
	w.below.WaitHeld(1) // and others have pages in transit all the time
	s.Fill([]storage.Object{w.objects["0"]})
	o := s.hold(w.objects["0"])
	defer s.release(o)
	warm := make(chan error, 1)
	go func() { warm <- s.Warm(t.Context()) }()
	for round := 0; ; round++ {
		require.LessOrEqual(t, round, mostAgain, "it goes on for ever")
		a.lost(&flight{s: s, object: o, fill: true, pages: run{512, 1024}})
		a.mu.Lock()
		goesOn := a.goBack()
		a.at = len(a.todo) // it was fetched, and is now in transit to another reader
		a.mu.Unlock()
		a.poke()
		if !goesOn {
			break
		}
		waitFor(t, func() bool { return clock.due(warmPause) })
		clock.forward(warmPause)
		waitFor(t, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.at < len(a.todo) })
	}
	waitFor(t, func() bool { return len(warm) > 0 })
	require.ErrorIs(t, <-warm, ErrNotFilled)
}

// A read that waits for a block that another reader has announced for later is moved forward.
func TestReadPromotesPlanOfOtherReader(t *testing.T) {
	w := newWorld(t, objectsOf(1, 8*mib))
	s, below := openTold(w)
	w.below.Hold()
	s.Want(2, []storage.Block{{Object: w.objects["0"], SizeBytes: mib, DueBytes: 1 << 30}})
	w.below.WaitHeld(1)
	done := make(chan error, 1)
	s.Submit([]*storage.Read{{Object: w.objects["0"], OffsetBytes: 5000, Buf: make([]byte, 50_000), Done: func(err error) { done <- err }}})
	waitFor(t, func() bool { return len(below.hears()) > 1 })
	w.below.Release()
	require.NoError(t, <-done)
}
