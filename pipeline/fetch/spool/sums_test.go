package spool

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// extents are the pieces of one shard.
type extents struct {
	starts []int64
	end    int64
}

func (x extents) PiecesOf(int) (first, last int) { return 0, len(x.starts) - 1 }
func (x extents) StartBytes(piece int) int64     { return x.starts[piece] }
func (x extents) DecodedBytes(int) int64         { return x.end }

// cut makes pieces of n records, of what were pieces of one.
func (x *extents) cut(n int) {
	var starts []int64
	for i := 0; i < len(x.starts); i += n {
		starts = append(starts, x.starts[i])
	}
	x.starts = starts
}

// Blocks cover a shard from its first piece on, none is checked by another's sum, and
// pieces begin at blocks.
func TestBlocksOfAShardHaveAPlaceEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x extents
		off, end := rapid.Int64Range(0, 2*BlockBytes).Draw(t, "head"), int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "records") {
			off += rapid.SampledFrom([]int64{0, 1, 100, BlockBytes - 1, BlockBytes, BlockBytes + 1, 5*BlockBytes + 7}).Draw(t, "stride")
			size := rapid.SampledFrom([]int64{0, 1, 100, BlockBytes, 3 * BlockBytes}).Draw(t, "size")
			x.starts = append(x.starts, off)
			end = max(end, off+size)
		}
		end += rapid.Int64Range(0, 2*BlockBytes).Draw(t, "behind")
		x.end = end
		x.cut(rapid.IntRange(1, 3).Draw(t, "records of a piece"))
		seen, starts, at := map[int]bool{}, map[int64]bool{}, x.StartBytes(0)
		for b := blockAt(x, 0, 0, at); b.off < end; b.next() {
			require.Equal(t, at, b.off)
			require.Greater(t, b.end, b.off)
			require.LessOrEqual(t, b.end-b.off, int64(BlockBytes))
			require.False(t, seen[b.sum])
			require.Less(t, b.sum, Sums(x, 0))
			seen[b.sum], starts[b.off] = true, true
			require.Equal(t, b.sum, blockAt(x, 0, b.piece, b.off).sum)
			require.Equal(t, b.sum, blockAt(x, 0, 0, b.end-1).sum)
			at = b.end
		}
		require.Equal(t, end, at)
		for piece := range x.starts {
			require.True(t, starts[x.StartBytes(piece)] || x.StartBytes(piece) == end)
		}
	})
}

// What was written is found right in ranges of whole blocks, and not once any byte of
// it is another.
func TestABlockThatHasChangedIsNoticed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := extents{starts: []int64{7, 7 + 3*BlockBytes + 5, 7 + 4*BlockBytes}, end: 6*BlockBytes + 1}
		shard := make([]byte, x.end)
		for i := range shard {
			shard[i] = byte(i * 7 / 3)
		}
		sums := make([]uint64, Sums(x, 0))
		m := NewSummer(x, 0, sums)
		for at := 0; at < len(shard); {
			n := min(rapid.IntRange(1, 3*BlockBytes).Draw(t, "bytes"), len(shard)-at)
			m.Add(shard[at : at+n])
			at += n
		}
		piece := rapid.IntRange(0, 2).Draw(t, "piece")
		off := rapid.Int64Range(x.starts[piece], x.end-1).Draw(t, "off")
		w := NewWidener(x, 0, piece)
		from := w.From(off)
		to := min(w.To(rapid.Int64Range(off+1, x.end).Draw(t, "end")), x.end)
		require.LessOrEqual(t, from, off)
		mem := append([]byte(nil), shard[from:to]...)
		ranges := func(yield func(off, size int64) bool) { yield(from, to-from) }
		require.NoError(t, Compare(x, 0, piece, sums, ranges, mem))
		mem[rapid.IntRange(0, len(mem)-1).Draw(t, "where")] ^= 1
		require.ErrorContains(t, Compare(x, 0, piece, sums, ranges, mem), "are others than were written")
	})
}
