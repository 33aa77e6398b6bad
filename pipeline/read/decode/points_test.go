package decode

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// long is a member of 4 MB, with points.
var long = readtest.Shape{Codec: "gz", Shards: 1, Records: 40, MaxBytes: 100_000, SameSize: true, PointBytes: 1 << 20}

func TestLoadFarIntoMemberStartsAtPrecedingPoint(t *testing.T) {
	o, set := newOwner(t, long)
	points := o.data.Index.PointTable[0]
	require.Len(t, points, 3)
	for _, n := range []int{39, 12, 25} {
		before := set.Stats().DecodedBytes
		l := o.load(n)
		set.Assign(l, budget.Demand)
		set.goroutines.Wait()
		entry := o.data.Index.Entry(0, l.Layout.Start())
		require.Positive(t, entry.Point)
		require.LessOrEqual(t, int64(set.Stats().DecodedBytes-before), l.Layout.Start()-entry.DecodedBytes+2*100_000)
		set.mu.Lock()
		for set.closeOldest() {
		}
		set.mu.Unlock()
	}
	require.Equal(t, map[int]int{39: 1, 12: 1, 25: 1}, o.came)
}

// CloseCheap closes a paused decoder that is needed soon only if it holds more bytes than would be
// decoded to open another one in its place.
func TestCheapDecodersAreClosed(t *testing.T) {
	o, set := newOwner(t, long)
	d := set.Assign(o.load(0), budget.Demand)
	set.goroutines.Wait()
	hold := func(bytes int64) {
		set.mu.Lock()
		defer set.mu.Unlock()
		set.hold(d, bytes)
	}
	soon := func(shard, piece int) int { return max(piece, 20) }
	cost := openCostBytes + d.raw.memory() + set.places.StartBytes(1)
	hold(cost)
	require.False(t, set.CloseCheap(soon))
	require.Equal(t, 1, set.Stats().Open)
	hold(cost + 1)
	set.budget.Charge(64 << 20) // all of it
	require.False(t, set.CloseCheap(soon), "segments have half of the budget anyway")
	require.False(t, set.CloseCheap(func(int, int) int { return -1 }))
	set.budget.Charge(-64 << 20)
	require.True(t, set.CloseCheap(soon))
	require.Zero(t, set.Stats().Open)
	require.False(t, set.CloseCheap(soon))
}

// With large blocks of the file, most of what a decoder holds would be read again.
func TestDecodersWithLargeBlocksAreKept(t *testing.T) {
	o, set := newOwner(t, long)
	set.blockBytes = 4 << 20
	d := set.Assign(o.load(17), budget.Demand)
	set.goroutines.Wait()
	again := set.places.StartBytes(18) - o.data.Index.Entry(0, set.places.StartBytes(18)).DecodedBytes
	require.Greater(t, d.held-openCostBytes, 4*again)
	require.False(t, set.CloseCheap(nil))
	require.Equal(t, 1, set.Stats().Open)
}

func TestDecodersThatAreNotNeededSoonAreClosed(t *testing.T) {
	o, set := newOwner(t, long)
	set.Assign(o.load(8), budget.Demand)
	set.goroutines.Wait()
	wanted := map[int]bool{}
	soon := func(_, piece int) int {
		for ; piece < 40; piece++ {
			if wanted[piece] {
				return piece
			}
		}
		return -1
	}
	for _, piece := range []int{20, 30, 10} { // one after the other: the decoder remembers the last
		clear(wanted)
		wanted[piece] = true
		require.False(t, set.CloseCheap(soon), "piece %d is needed soon", piece)
	}
	clear(wanted)
	wanted[8] = true // which it has passed
	require.False(t, set.CloseCheap(nil), "it is not known what is needed soon")
	require.True(t, set.CloseCheap(soon))
	require.Zero(t, set.Stats().Open)
}

// While one decoder is at the beginning of a shard, and a core is free, another one takes what lies
// behind a point.
func TestShardIsDecodedOnSeveralCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	o, set := newOwner(t, long)
	last, came := 39, make(chan struct{})
	o.room = func(l *Load) bool {
		if l.Piece == 0 {
			<-came // which is behind it
		}
		return true
	}
	decoders := map[*Decoder]bool{}
	for n := range last {
		decoders[set.Assign(o.load(n), budget.Prefetch)] = true
	}
	far := set.Assign(o.load(last), budget.Demand)
	require.Len(t, decoders, 2, "the first one has little before it where the first point is")
	require.True(t, decoders[far], "which goes on there")
	o.mu.Lock()
	for o.came[last] == 0 {
		o.change.Wait()
	}
	o.mu.Unlock()
	close(came)
	o.ended(last + 1)
	require.Empty(t, o.failed)
	require.Len(t, o.came, last+1)
	require.LessOrEqual(t, int64(set.Stats().DecodedBytes), o.data.DecodedBytes()+shareBytes/8)
}

// What has changed between two points is found at the second, and what lies before it is not given.
func TestChangedByteIsDetectedAtNextPoint(t *testing.T) {
	o, set := newOwner(t, long)
	points := o.data.Index.PointTable[0]
	points[1].CRC32++
	piece := func(at int64) (number int) {
		for i, x := range o.data.Index.ExtentTable {
			if x.OffsetBytes+x.SizeBytes <= at {
				number = i
			}
		}
		return number
	}
	last := piece(points[1].DecodedBytes) // which ends before the second point
	set.Assign(o.load(last-1), budget.Demand)
	o.ended(1)
	set.Assign(o.load(last+1), budget.Demand)
	o.ended(2)
	require.Equal(t, map[int]int{last - 1: 1}, o.came)
	damage, ok := errors.AsType[*format.CorruptError](o.failed[last+1])
	require.True(t, ok)
	require.Contains(t, damage.Reason, "when it was indexed")
}

// A decoder that has brought the last load it knows of goes on to the next point, so that what it
// has brought is compared. Then the rest of that piece is brought by another one.
func TestLoadsOfPieceContainingPointAreServed(t *testing.T) {
	o, set := newOwner(t, long)
	at := o.data.Index.PointTable[0][1].DecodedBytes
	number := 0
	for i, x := range o.data.Index.ExtentTable {
		if x.OffsetBytes < at {
			number = i
		}
	}
	before := at - o.data.Index.ExtentTable[number].OffsetBytes
	require.Greater(t, before, int64(100))
	parts := []*Load{o.part(number, 0, before-80), o.part(number, before-70, before-60), o.part(number, before-60, before-50), o.part(number, before-20, before+20)}
	for i, p := range parts {
		set.Assign(p, budget.Demand)
		o.mu.Lock()
		for o.brought < i+1 && len(o.failed) == 0 {
			o.change.Wait()
		}
		o.mu.Unlock()
		require.Empty(t, o.failed)
		require.Equal(t, o.bytesOf(p.Layout.Start(), p.Layout.SizeBytes), p.Memory)
	}
}

// Members of an index's points have to be of a codec that has some.
func TestInvalidPointsErrorSuggestsFix(t *testing.T) {
	o, set := newOwner(t, long)
	o.data.Index.PointTable[0][2].State = []byte("no window")
	set.Assign(o.load(39), budget.Demand)
	o.ended(1)
	require.ErrorContains(t, o.failed[39], "makes the index again")
}
