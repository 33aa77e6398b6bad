package diskcache

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// shuffledEpoch reads all of some objects as an order would: chunks in random order, some of them
// open at a time, and the parts of these in random order. It announces some chunks ahead, and
// reports chunks that are passed.
func (w *world) shuffledEpoch(s *Storage, chunkBytes, open, ahead int, seed uint64) (chunks, requests int64) {
	const parts = 5
	rng := rand.New(rand.NewPCG(seed, 1))
	var order []storage.Block
	for i := range len(w.files) {
		o := w.objects[fmt.Sprint(i)]
		for off := int64(0); off < o.SizeBytes; off += int64(chunkBytes) {
			order = append(order, storage.Block{Object: o, OffsetBytes: off, SizeBytes: min(int64(chunkBytes), o.SizeBytes-off)})
		}
	}
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	before := w.reads.Load()
	type begun struct {
		want storage.Block
		left []int
	}
	var now []begun
	for next := 0; next < len(order) || len(now) > 0; {
		for ; next < len(order) && len(now) < open; next++ {
			now = append(now, begun{order[next], rng.Perm(parts)})
			wants := append([]storage.Block(nil), order[next:min(next+ahead, len(order))]...)
			for i := range wants {
				wants[i].DueBytes = int64(i * chunkBytes)
			}
			s.Want(seed, wants)
		}
		i := rng.IntN(len(now))
		c := &now[i]
		part := (c.want.SizeBytes + parts - 1) / parts
		off := min(int64(c.left[0])*part, c.want.SizeBytes)
		if n := min(part, c.want.SizeBytes-off); n > 0 {
			buf := make([]byte, n)
			at := c.want.OffsetBytes + off
			require.NoError(w.t, storage.ReadAt(w.t.Context(), s, c.want.Object, buf, at))
			require.Equal(w.t, w.files[c.want.Object.Path][at:at+n], buf)
		}
		if c.left = c.left[1:]; len(c.left) == 0 {
			s.Passed(seed, []storage.Block{{Object: c.want.Object, OffsetBytes: c.want.OffsetBytes, SizeBytes: c.want.SizeBytes}})
			settle(s) // it is freed soon; don't overtake that
			now[i] = now[len(now)-1]
			now = now[:len(now)-1]
		}
	}
	s.Drop(seed)
	settle(s)
	require.Empty(w.t, s.ahead.plans.held)
	return int64(len(order)), w.reads.Load() - before
}

// countExactly makes a cache take its own estimate of its directory, which nothing else uses, for a
// count: a count that overlaps with changes finds too much, and changes overlap with all of a test.
func countExactly(s *Storage) {
	r := &s.room
	r.count = func() {}
	r.countNow = func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.counted, r.base, r.dropped = r.used()-r.reserved, r.added, 0
		return true
	}
}

// The first epoch fetches each chunk once. The second fetches half of them if half of the objects
// have room besides what is open, and nothing if all have.
func TestEpochsTakeOneRequestPerUncachedChunk(t *testing.T) {
	const objects, size, chunkBytes, open, ahead = 6, 4 * mib, 100_000, 20, 10
	share := int64(2 * (open + ahead) * chunkBytes)
	for name, c := range map[string]struct {
		bound, share int64
		most         float64 // of the second epoch, per chunk
	}{
		"all":  {1 << 30, 0, 0},
		"half": {objects*size/2 + share, share, 0.54},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objectsOf(objects, size))
			s := w.open(func(config *Config) { config.BoundBytes, config.ShareBytes = c.bound, c.share })
			countExactly(s)
			chunks, requests := w.shuffledEpoch(s, chunkBytes, open, ahead, 1)
			t.Logf("%d requests for %d chunks", requests, chunks)
			require.LessOrEqual(t, float64(requests), 1.02*float64(chunks))
			_, requests = w.shuffledEpoch(s, chunkBytes, open, ahead, 2)
			t.Logf("%d requests for %d chunks", requests, chunks)
			require.LessOrEqual(t, float64(requests), c.most*float64(chunks))
			require.LessOrEqual(t, w.blocks(), c.bound)
		})
	}
}

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
