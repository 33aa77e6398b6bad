package diskcache

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

// here waits until a range can be read without the storage below.
func (w *world) here(s *Storage, path string, off, n int64) {
	w.t.Helper()
	waitFor(w.t, func() bool {
		settle(s)
		o := s.hold(w.objects[path])
		defer s.release(o)
		files := o.files.Load()
		if files == nil {
			return false
		}
		r := runOf(off, n)
		sums := make([]byte, r.pages()*sumBytes)
		_, err := s.dir.disk.read(files.sums.FD(), sums, sumsAt(r.begin))
		return err == nil && len(missing(sums, r.begin, 0)) == 0
	})
}

func TestPlannedChunksAreRead(t *testing.T) {
	w := newWorld(t, objectsOf(2, 4*mib))
	s := w.open(nil)
	s.Want(1, []storage.Block{
		{Object: w.objects["0"], OffsetBytes: 100, SizeBytes: 300_000, DueBytes: 0},
		{Object: w.objects["1"], OffsetBytes: 1_000_000, SizeBytes: 300_000, DueBytes: 10},
		{Object: w.objects["1"], OffsetBytes: 4 * mib, SizeBytes: 1, DueBytes: 10}, // outside of the object
	})
	w.here(s, "0", 100, 300_000)
	w.here(s, "1", 1_000_000, 300_000)
	require.EqualValues(t, 2, w.reads.Load(), "one read a chunk")
	require.Zero(t, w.read(s, "0", 100, 300_000))
	require.Zero(t, w.read(s, "1", 1_000_000, 300_000))
}

// What is in transit is not requested again.
func TestReadJoinsPlannedChunk(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(nil)
	w.below.Hold()
	s.Want(1, []storage.Block{{Object: w.objects["0"], SizeBytes: 300_000}})
	w.below.WaitHeld(1)
	done := make(chan error, 1)
	s.Submit([]*storage.Read{{Object: w.objects["0"], OffsetBytes: 5000, Buf: make([]byte, 50_000), Done: func(err error) { done <- err }}})
	waitFor(t, func() bool { return s.counts.misses.Load() > 0 })
	w.below.Release()
	require.NoError(t, <-done)
	require.EqualValues(t, 1, w.reads.Load())
}

func TestCancelledPlanIsNotStarted(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(nil)
	w.below.Hold()
	s.Want(1, []storage.Block{{Object: w.objects["0"], SizeBytes: 300_000}})
	w.below.WaitHeld(1)
	s.Drop(1)
	w.below.Release()
	settle(s)
	require.Zero(t, s.Stats().Written)
	require.NotZero(t, w.read(s, "0", 0, 300_000))
}

func TestChunkIsRetainedForSecondReader(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 32*mib, 32*mib })
	want := []storage.Block{{Object: w.objects["0"], SizeBytes: 409_600}}
	s.Want(1, want)
	s.Want(2, want)
	w.here(s, "0", 0, 409_600)
	s.Want(1, nil) // it was started
	s.Passed(1, []storage.Block{{Object: w.objects["0"], OffsetBytes: 0, SizeBytes: 409_600}})
	require.Zero(t, w.read(s, "0", 0, 409_600))
	s.Drop(2)
	settle(s)
	require.NotZero(t, w.read(s, "0", 0, 409_600))
}

func TestFillReadsMissingPages(t *testing.T) {
	w := newWorld(t, objectsOf(3, 10*mib+5))
	s := w.open(nil)
	w.read(s, "1", mib, 2*mib)
	before := w.bytes.Load()
	require.Equal(t, 1.0, s.Stats().Fill, "nothing is to be filled")
	s.Fill([]storage.Object{w.objects["0"], w.objects["1"], w.objects["2"]})
	require.NoError(t, s.Warm(t.Context()))
	require.Equal(t, 1.0, s.Stats().Fill)
	require.EqualValues(t, 3*(10*mib+5)-2*mib, w.bytes.Load()-before, "what was here is left out")
	for path := range w.objects {
		require.Zero(t, w.read(s, path, 0, 10*mib+5))
	}
	s.Fill([]storage.Object{w.objects["0"]})
	require.NoError(t, s.Warm(t.Context()), "there is nothing left to do")
}

// The bound is exactly what the dataset takes: parts in transit that were not counted yet do not
// mean that there is no room.
func TestFillReadsEverythingThatFits(t *testing.T) {
	const objects, size = 4, 10*mib + 5
	w := newWorld(t, objectsOf(objects, size))
	need := Place{DatasetBytes: objects * size, Objects: objects}.NeedBytes()
	s := w.open(func(c *Config) { c.BoundBytes = need })
	s.Fill([]storage.Object{w.objects["0"], w.objects["1"], w.objects["2"], w.objects["3"]})
	require.NoError(t, s.Warm(t.Context()))
	for path := range w.objects {
		require.Zero(t, w.read(s, path, 0, size))
	}
	require.LessOrEqual(t, w.blocks(), need)
}

func TestFillStopsWithoutSpace(t *testing.T) {
	w := newWorld(t, objectsOf(3, 10*mib))
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 16*mib, 4*mib })
	s.Fill([]storage.Object{w.objects["0"], w.objects["1"], w.objects["2"]})
	require.ErrorIs(t, s.Warm(t.Context()), ErrNotFilled)
	settle(s)
	_, shared, _ := s.room.usage()
	require.Zero(t, shared, "the share is not for the fill")
	require.Less(t, w.blocks(), int64(13*mib))
	require.Greater(t, w.blocks(), int64(7*mib))
}

func TestFillPauses(t *testing.T) {
	w := newWorld(t, objectsOf(1, 10*mib))
	s := w.open(nil)
	s.PauseFill(true)
	s.Fill([]storage.Object{w.objects["0"]})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Warm(ctx), context.Canceled)
	w.read(s, "0", 0, 1)
	require.EqualValues(t, 1, w.reads.Load())
	s.PauseFill(false)
	require.NoError(t, s.Warm(t.Context()))
	require.Zero(t, w.read(s, "0", 0, 10*mib))
}

func TestCloseStopsFill(t *testing.T) {
	w := newWorld(t, objectsOf(4, 10*mib))
	s := w.open(nil)
	w.below.Hold()
	s.Fill([]storage.Object{w.objects["0"], w.objects["1"]})
	w.below.WaitHeld(1)
	go func() {
		<-s.ahead.ctx.Done() // otherwise everything may be filled before Close is called
		w.below.Release()
	}()
	require.NoError(t, s.Close())
	require.Error(t, s.Warm(t.Context()))
}

// The chunk was not started: of many parts that are read at a time the first one fetches it, and
// the storage below gets one request.
func TestReadLoadsWholePlannedChunk(t *testing.T) {
	const begin, size, part = 1_000_100, 300_000, 5_000
	w := newWorld(t, objectsOf(2, 4*mib))
	s := w.open(nil)
	s.ahead.planned.Add(s.config.BufferBytes) // so much is in transit that nothing is started
	s.Want(1, []storage.Block{
		{Object: w.objects["0"], OffsetBytes: begin, SizeBytes: size, DueBytes: 1 << 30},
		{Object: w.objects["0"], OffsetBytes: begin + size, SizeBytes: size, DueBytes: 1 << 30},
	})
	var reads []*storage.Read
	done := make(chan error, size/part)
	for off := int64(begin); off < begin+size; off += part {
		reads = append(reads, &storage.Read{Object: w.objects["0"], OffsetBytes: off, Buf: make([]byte, part), Done: func(err error) { done <- err }})
	}
	s.Submit(reads)
	for range reads {
		require.NoError(t, <-done)
	}
	for _, r := range reads {
		require.Equal(t, w.files["0"][r.OffsetBytes:][:part], r.Buf)
	}
	settle(s)
	require.EqualValues(t, 1, w.reads.Load(), "all of the chunk at once")
	require.EqualValues(t, runOf(begin, size).bytes(), w.bytes.Load(), "and not the next one")
	require.EqualValues(t, 1, w.read(s, "0", begin+size+4096, 100))
	require.Zero(t, w.read(s, "0", begin+size, size))
	require.EqualValues(t, 1, w.read(s, "1", 10, 100))
	require.EqualValues(t, 1, w.read(s, "1", 10_000, 100), "what nobody has planned is brought by the page")
	s.Drop(1)
	settle(s)
	require.Empty(t, s.ahead.plans.held)
	require.Empty(t, s.ahead.plans.holders)
	require.Empty(t, s.urgent)
	s.ahead.planned.Add(-s.config.BufferBytes)
}

// It fetches what it needs, which passes through.
func TestReadOfPlannedChunkWithoutSpace(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(func(c *Config) { c.BoundBytes = 100_000 })
	s.Want(1, []storage.Block{{Object: w.objects["0"], SizeBytes: mib}})
	for i := range 3 {
		require.EqualValues(t, 1, w.read(s, "0", 10_000, 200_000), "%d", i)
	}
	require.EqualValues(t, 600_000, w.bytes.Load())
}

// There was no room for the chunk when a reader wanted all of it, and there is before the reader
// has passed it.
func TestPlannedChunkIsNotReadTwice(t *testing.T) {
	const n = 100 * pageBytes
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(nil)
	s.room.setBound(1)
	s.Want(1, []storage.Block{{Object: w.objects["0"], SizeBytes: n}, {Object: w.objects["0"], OffsetBytes: n, SizeBytes: n}})
	require.EqualValues(t, 1, w.read(s, "0", 0, n), "it passes through")
	s.room.setBound(1 << 30)
	s.ahead.poke()
	w.here(s, "0", n, n)
	require.EqualValues(t, 2, w.reads.Load(), "the other one is brought, and not this one")
}

// Nothing else of the object is fetched.
func TestPartOfObjectIsFilled(t *testing.T) {
	w := newWorld(t, objectsOf(2, 20*mib))
	s := w.open(nil)
	s.FillRanges([]Range{{w.objects["0"], 5000, 9 * mib}, {w.objects["1"], 19 * mib, mib}})
	require.NoError(t, s.Warm(t.Context()))
	done, total := s.Filled()
	require.Equal(t, total, done)
	require.EqualValues(t, 10*mib, total)
	require.EqualValues(t, 3, w.reads.Load(), "8 MiB, the rest, and the other one")
	require.Zero(t, w.read(s, "0", 5000, 9*mib))
	require.Zero(t, w.read(s, "1", 19*mib, mib))
	require.EqualValues(t, 1, w.read(s, "0", 10*mib, mib))
}

// It is filled up to the object's end: the newline of a last line may be missing there.
func TestRangeEndingAfterItsObject(t *testing.T) {
	w := newWorld(t, objectsOf(1, 16*pageBytes))
	s := w.open(nil)
	s.FillRanges([]Range{{w.objects["0"], 15 * pageBytes, pageBytes + 1}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.Warm(ctx))
	_, total := s.Filled()
	require.EqualValues(t, pageBytes, total)
	require.Zero(t, w.read(s, "0", 15*pageBytes, pageBytes))
}

// told is a storage that records hints.
type told struct {
	*faulty.Storage
	mu   sync.Mutex
	said []string
	fill int // reads that were submitted by Fill
}

func (s *told) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.Hints, c.Fill = s, s.Fill
	return c
}

func (s *told) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *told) Want(reader uint64, blocks []storage.Block) { s.sayBlocks("want", reader, blocks) }

func (s *told) Passed(reader uint64, blocks []storage.Block) { s.sayBlocks("passed", reader, blocks) }

func (s *told) Drop(reader uint64) { s.say("drop %d", reader) }

func (s *told) Use() storage.HintUse { return storage.HintUse{} }

func (s *told) SetShare(int64) {}

func (s *told) sayBlocks(what string, reader uint64, blocks []storage.Block) {
	text := fmt.Sprintf("%s %d:", what, reader)
	for _, b := range blocks {
		text += fmt.Sprintf(" %s %d+%d due %d", b.Object.Path, b.OffsetBytes, b.SizeBytes, b.DueBytes)
	}
	s.say("%s", text)
}

func (s *told) Fill(reads []*storage.Read) {
	s.mu.Lock()
	s.fill += len(reads)
	s.mu.Unlock()
	s.Submit(reads)
}

func (s *told) hears() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said
}

func (s *told) filled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fill
}

func openTold(w *world) (*Storage, *told) {
	var below *told
	s := w.open(func(c *Config) {
		below = &told{Storage: w.below}
		c.Below = below
	})
	return s, below
}

// Hints are passed to the storage below, so that it reads in order of urgency; and the fill uses
// Fill.
func TestPlansAreForwardedToUnderlyingStorage(t *testing.T) {
	w := newWorld(t, objectsOf(2, 20*mib))
	s, below := openTold(w)
	s.Want(3, []storage.Block{{Object: w.objects["0"], OffsetBytes: 100, SizeBytes: 300_000, DueBytes: 7}})
	w.here(s, "0", 100, 300_000)
	s.Passed(3, []storage.Block{{Object: w.objects["0"], OffsetBytes: 100, SizeBytes: 300_000}})
	s.Drop(3)
	require.Equal(t, []string{"want 3: 0 100+300000 due 7", "passed 3: 0 100+300000 due 0", "drop 3"}, below.hears())
	require.Zero(t, below.filled(), "that was no fill")

	s.Fill([]storage.Object{w.objects["1"]})
	require.NoError(t, s.Warm(t.Context()))
	require.Equal(t, 3, below.filled())
	require.Len(t, below.hears(), 3)
}

// A part of the fill that a reader waits for is announced as due at once.
func TestAwaitedPartOfFillIsPromoted(t *testing.T) {
	w := newWorld(t, objectsOf(1, 8*mib))
	s, below := openTold(w)
	w.below.Hold()
	s.Fill([]storage.Object{w.objects["0"]})
	w.below.WaitHeld(1)
	done := make(chan error, 1)
	s.Submit([]*storage.Read{{Object: w.objects["0"], OffsetBytes: 5000, Buf: make([]byte, 50_000), Done: func(err error) { done <- err }}})
	waitFor(t, func() bool { return len(below.hears()) > 0 })
	require.Equal(t, []string{fmt.Sprintf("want %d: 0 0+%d due 0", uint64(ownReader), 8*mib)}, below.hears())
	w.below.Release()
	require.NoError(t, <-done)
	require.EqualValues(t, 1, w.reads.Load(), "it is not read twice")
}

// The fill waits while announced blocks are not started.
func TestFillYieldsToPlans(t *testing.T) {
	w := newWorld(t, objectsOf(2, 20*mib))
	s := w.open(func(c *Config) { c.BufferBytes = 4 * mib })
	w.below.Hold()
	var wants []storage.Block
	for off := int64(0); off < 16*mib; off += mib {
		wants = append(wants, storage.Block{Object: w.objects["0"], OffsetBytes: off, SizeBytes: mib, DueBytes: off})
	}
	s.Want(1, wants)
	w.below.WaitHeld(2)
	s.Fill([]storage.Object{w.objects["1"]})
	done, total := s.Filled()
	require.Zero(t, done)
	require.EqualValues(t, 20*mib, total)
	w.below.Release()
	w.here(s, "0", 0, 16*mib)
	require.NoError(t, s.Warm(t.Context()))
	require.Zero(t, w.read(s, "1", 0, 20*mib))
}

// A block that was started is not considered again when a later list repeats it.
func TestWantedChunkIsStartedOnce(t *testing.T) {
	p := newPlans()
	a, b := storage.Block{OffsetBytes: 0, SizeBytes: 10}, storage.Block{OffsetBytes: 10, SizeBytes: 10, DueBytes: 10}
	p.set(1, []storage.Block{a, b})
	reader, w, ok := p.next()
	require.True(t, ok)
	require.Equal(t, a, w)
	p.begun(reader, w)
	p.set(1, []storage.Block{a, b})
	_, w, _ = p.next()
	require.Equal(t, b, w)
	p.begun(1, a)
	require.True(t, p.wait(), "another one is next")
	require.True(t, p.done(1, chunkOf(a)))
	p.set(1, []storage.Block{a, b})
	_, w, _ = p.next()
	require.Equal(t, a, w, "it was done, and is wanted anew")
}

// A block for which there is no room waits for it, and is fetched when others are passed.
func TestWantedChunkWaitsForSpace(t *testing.T) {
	w := newWorld(t, objectsOf(2, 8*mib))
	s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 6*mib, 5*mib })
	first := storage.Block{Object: w.objects["0"], SizeBytes: 4 * mib}
	second := storage.Block{Object: w.objects["1"], SizeBytes: 4 * mib, DueBytes: 4 * mib}
	s.Want(1, []storage.Block{first, second})
	w.here(s, "0", 0, 4*mib)
	settle(s)
	require.EqualValues(t, 1, w.reads.Load())
	s.Passed(1, []storage.Block{{Object: w.objects["0"], OffsetBytes: 0, SizeBytes: 4 * mib}})
	w.here(s, "1", 0, 4*mib)
}
