package scan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
)

const testSegment = 64 << 10

func newTestCache(t *testing.T, bytes int64) *cache {
	c := &cache{memory: newMemory(testSegment, nil, false), budget: budget.New(bytes), ask: func() bool { return false }, closeDecoder: func() bool { return false }, mostTables: 1 << 40, slots: &slots{}, gone: map[int][]uint64{}}
	t.Cleanup(func() {
		require.NoError(t, c.close())
		require.Zero(t, c.mapped())
		require.Zero(t, c.arena.FreeBytes())
	})
	return c
}

// allocOnce takes n bytes, and releases them at once.
func allocOnce(t *testing.T, c *cache, n int64) *segment {
	s, off, err := c.alloc(n, budget.Prefetch)
	require.NoError(t, err)
	require.GreaterOrEqual(t, int64(len(s.Bytes)), off+n)
	s.Pins.Unpin()
	return s
}

// Once the budget is used up, pieces larger than a segment reuse memory that has been touched: that
// of the oldest pieces, even if these were not quite as large.
func TestLargePiecesReuseMemoryOfEvictedOnes(t *testing.T) {
	const pieceBytes = 8 * testSegment
	c := newTestCache(t, 4*pieceBytes)
	touched := map[*byte]bool{}
	for range 4 {
		touched[unsafe.SliceData(allocOnce(t, c, pieceBytes).Bytes)] = true
	}
	for i := range int64(20) {
		s := allocOnce(t, c, pieceBytes-i*1024)
		require.True(t, touched[unsafe.SliceData(s.Bytes)], "piece %d got new memory", i)
		require.Equal(t, int64(4*pieceBytes), c.mapped())
	}
}

// A piece does not get memory that is much larger than it is.
func TestMuchLargerMemoryIsNotReusedForPiece(t *testing.T) {
	c := newTestCache(t, 16*testSegment)
	allocOnce(t, c, 16*testSegment)
	require.Len(t, allocOnce(t, c, 8*testSegment).Bytes, 8*testSegment)
	require.Equal(t, int64(8*testSegment), c.mapped(), "what was too large is unmapped")
}

// For any sizes of pieces, nothing is held beyond the budget while no reader waits, spare memory
// included; and memory that others take from the budget is given up at once.
func TestSpareMemoryStaysWithinBudget(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const bytes = 64 * testSegment
	c := newTestCache(t, bytes)
	for range 3000 {
		allocOnce(t, c, 1+random.Int64N(12*testSegment))
		require.LessOrEqual(t, c.beyond(), int64(0))
	}
	c.budget.Charge(bytes / 2)
	c.shrink()
	require.LessOrEqual(t, c.mapped(), int64(bytes/2))
}

// Records that wait in a piece larger than a segment are copied once half of it was delivered: they
// are not read again.
func TestWantedPartsOfLargePieceAreCopiedWhenItsMemoryIsNeeded(t *testing.T) {
	const pieceBytes, pieces, records = 4 * testSegment, 16, 16
	c := newTestCache(t, pieces*pieceBytes)
	c.slots = newSlots(pieces, pieces)
	for i := range pieces {
		s, off, err := c.alloc(pieceBytes, budget.Prefetch)
		require.NoError(t, err)
		e := newEntry(&s.Memory, i, evenSpans(off, pieceBytes, records))
		for r := range records {
			copy(e.bytes(r), fmt.Sprintf("record %d of %d", r, i))
		}
		e.mem.Live.Add(pieceBytes)
		c.attach(s, e)
		c.slots.set(i, e)
		s.Pins.Unpin()
		if i > 2 {
			continue
		}
		for r := range records / 2 {
			require.True(t, e.deliver(r))
		}
	}
	allocOnce(t, c, pieceBytes)
	require.Zero(t, c.dropped)
	kept := c.slots.at(0)
	require.NotNil(t, kept)
	for r := range records {
		require.Equal(t, r >= records/2, c.slots.has(0, r), "record %d", r)
	}
	for r := records / 2; r < records; r++ {
		want := fmt.Sprintf("record %d of 0", r)
		require.Equal(t, want, string(kept.bytes(r)[:len(want)]))
	}
}

// Of segments whose records all wait, the one is dropped of which the fewest will be needed soon. If
// it is pinned, or nothing is counted, that is another one.
func TestSegmentThatIsWantedLeastIsDroppedFirst(t *testing.T) {
	for _, x := range []struct {
		counts []int32 // of the pieces, which fill a segment each
		pinned int     // a piece
		gone   int
	}{
		{[]int32{5, 0, 3}, -1, 1},
		{[]int32{5, 0, 3}, 1, 2},
		{[]int32{5, 3, 3}, -1, 1},
		{[]int32{5, 3, 0}, -1, 1}, // the newest is left out
		{nil, -1, 0},
	} {
		c := newTestCache(t, 4*testSegment)
		c.slots = newSlots(3, 3)
		if x.counts != nil {
			c.soon = func(piece int) int32 { return x.counts[piece] }
		}
		entries := make([]*entry, 3)
		for i := range entries {
			s := allocOnce(t, c, testSegment)
			e := newEntry(&s.Memory, i, evenSpans(0, testSegment, 4))
			s.Live.Add(testSegment)
			c.attach(s, e)
			c.slots.set(i, e)
			entries[i] = e
		}
		c.budget.Allow(3*testSegment + c.tables)
		if x.pinned >= 0 {
			require.True(t, entries[x.pinned].mem.Pins.Pin())
		}
		allocOnce(t, c, testSegment)
		if x.pinned >= 0 {
			entries[x.pinned].mem.Pins.Unpin()
		}
		for i := range entries {
			require.Equal(t, i == x.gone, c.slots.at(i) == nil, "%+v: piece %d", x, i)
		}
	}
}

// evenSpans returns the spans of records of equal size.
func evenSpans(off, bytes int64, records int) []chunkmap.Span {
	spans := make([]chunkmap.Span, records)
	for i := range spans {
		n := bytes / int64(records)
		spans[i] = chunkmap.Span{OffsetBytes: off + int64(i)*n, SizeBytes: n}
	}
	return spans
}
