package diskcache

import (
	"fmt"
	"math/rand/v2"
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
