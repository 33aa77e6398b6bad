package piece

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Reads of a piece hold its bytes, each once, are no larger than the storage
// likes, and are cut where it likes.
func TestPiecesAreCutIntoReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		align := int64(1) << rapid.IntRange(0, 12).Draw(t, "align")
		most := max(align*rapid.Int64Range(1, 100).Draw(t, "read"), (1000+align-1)&^(align-1))
		var l Layout
		at := int64(0)
		for range rapid.IntRange(1, 4).Draw(t, "ranges") {
			at += rapid.Int64Range(1, 10_000).Draw(t, "gap")
			size := rapid.Int64Range(0, 100_000).Draw(t, "size")
			l.Ranges = append(l.Ranges, Range{at, size})
			at += size
		}
		var reads []Range
		l.Reads(most, align, func(r Range) { reads = append(reads, r) })
		for _, r := range l.Ranges {
			n, cuts := 0, (r.SizeBytes+2*align)/most+2
			for end := r.OffsetBytes + r.SizeBytes; r.OffsetBytes < end; n++ {
				require.NotEmpty(t, reads)
				next := reads[0]
				require.Equal(t, r.OffsetBytes, next.OffsetBytes)
				require.Positive(t, next.SizeBytes)
				require.LessOrEqual(t, next.SizeBytes, most)
				if r.OffsetBytes += next.SizeBytes; r.OffsetBytes < end {
					require.Zero(t, r.OffsetBytes%align)
				}
				require.LessOrEqual(t, r.OffsetBytes, end)
				reads = reads[1:]
			}
			require.LessOrEqual(t, int64(n), cuts)
		}
		require.Empty(t, reads)
	})
}
