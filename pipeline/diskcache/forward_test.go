package diskcache

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

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
