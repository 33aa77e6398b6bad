package chunkmap

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// For any sizes of pieces, the piece of a record is the last one that begins at or before it.
func TestRecordIsFoundInPieceThatHoldsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		starts := []uint64{0}
		for range rapid.IntRange(1, 60).Draw(t, "pieces") {
			starts = append(starts, starts[len(starts)-1]+rapid.SampledFrom([]uint64{1, 2, 3, 100, 5000}).Draw(t, "records"))
		}
		n := starts[len(starts)-1]
		x, err := New(starts, n)
		require.NoError(t, err)
		require.Equal(t, len(starts)-1, x.Len())
		for piece := range x.Len() {
			require.Equal(t, int(starts[piece+1]-starts[piece]), x.Records(piece))
			for _, record := range []uint64{starts[piece], (starts[piece] + starts[piece+1]) / 2, starts[piece+1] - 1} {
				require.Equal(t, piece, x.Of(record), "record %d", record)
			}
		}
	})
}

func TestPiecesNotCoveringRecordsAreRefused(t *testing.T) {
	_, err := New([]uint64{0, 5}, 6)
	require.ErrorContains(t, err, "1 pieces do not cover its 6 records")
	x, err := New([]uint64{0}, 0)
	require.NoError(t, err)
	require.Zero(t, x.Len())
}
