package diskcache

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// lag makes a cache behave as if its disk had more to write than it may, until the test ends or the
// result is called.
func lag(t *testing.T, s *Storage) (end func()) {
	n := s.config.BufferBytes
	s.unwritten.Add(n)
	var ended atomic.Bool
	end = func() {
		if !ended.Swap(true) {
			s.unwritten.Add(-n)
		}
	}
	t.Cleanup(end)
	return end
}

// Readers wait for the disk then: every record of a chunk would request again what passed through.
func TestPartsOfPlannedChunkAreRequestedOnceOnSlowDisk(t *testing.T) {
	const chunks, size, part = 10, 300_000, 5_000
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(nil)
	lag(t, s)
	var wants []storage.Block
	for i := range int64(chunks) {
		wants = append(wants, storage.Block{Object: w.objects["0"], OffsetBytes: i * size, SizeBytes: size, DueBytes: i * size})
	}
	s.Want(1, wants)
	for off := 0; off < size; off += part { // a part of each in turn, as records of a shuffle are read
		for i := range chunks {
			w.read(s, "0", i*size+off, part)
		}
	}
	require.LessOrEqual(t, w.reads.Load(), int64(chunks+1))
	s.Drop(1)
}

// They are fetched by the fill when the disk is no longer slow, so the next epoch requests nothing.
func TestWholeChunksBypassSlowDisk(t *testing.T) {
	const chunk = 64 * pageBytes
	w := newWorld(t, objectsOf(2, 4*mib))
	s := w.open(nil)
	end := lag(t, s)
	o := w.objects["0"]
	s.FillOnceRead([]storage.Object{o, w.objects["1"]})
	s.PauseFill(true)
	var wants []storage.Block
	for off := int64(0); off < o.SizeBytes; off += chunk {
		wants = append(wants, storage.Block{Object: o, OffsetBytes: off, SizeBytes: chunk, DueBytes: off})
	}
	s.Want(1, wants)
	s.PauseFill(true)
	for _, x := range wants {
		require.EqualValues(t, 1, w.read(s, "0", int(x.OffsetBytes), chunk))
	}
	end()
	s.PauseFill(false)
	for _, x := range wants {
		s.Passed(1, []storage.Block{{Object: x.Object, OffsetBytes: x.OffsetBytes, SizeBytes: x.SizeBytes}})
	}
	s.Drop(1)
	s.ahead.poke()
	waitFor(t, func() bool { return s.Stats().Fill == 1 })
	before := w.reads.Load()
	for path, content := range w.files {
		w.read(s, path, 0, len(content))
	}
	require.Equal(t, before, w.reads.Load())
}

// The fill has skipped pages that were in transit to a reader, which does not want them any more
// when they arrive.
func TestFillReturnsForChunksAbandonedByReader(t *testing.T) {
	w := newWorld(t, objectsOf(1, 20*mib))
	s := w.open(nil)
	w.below.Hold()
	var wanted atomic.Bool
	wanted.Store(true)
	done := make(chan error, 1)
	s.Submit([]*storage.Read{{Object: w.objects["0"], OffsetBytes: 9 * mib, Buf: make([]byte, mib), Wanted: wanted.Load, Done: func(err error) { done <- err }}})
	w.below.WaitHeld(1)
	s.FillOnceRead([]storage.Object{w.objects["0"]})
	s.PauseFill(false)
	w.below.WaitHeld(4) // with 8 MiB: what is before the reader's pages, and what is after them
	wanted.Store(false)
	w.below.Release()
	require.ErrorIs(t, <-done, storage.ErrUnwanted)
	waitFor(t, func() bool {
		settle(s)
		return s.holds([]Range{{w.objects["0"], 0, 20 * mib}})
	})
	before := w.reads.Load()
	require.Equal(t, before, before+w.read(s, "0", 0, 20*mib))
	waitFor(t, func() bool { return s.Stats().Fill == 1 })
}
