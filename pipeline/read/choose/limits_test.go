package choose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestInFlightLimitFollowsStorage(t *testing.T) {
	p := storage.DefaultProfile(storage.KindSSD)
	require.EqualValues(t, 128<<10, NewLimits(1<<30, 0, 0, p).RawBlockBytes)
	p.InFlightBytes = 1 << 20
	require.EqualValues(t, 2<<20, NewLimits(1<<30, 0, 0, p).InFlightBytes)
	p.InFlightBytes = 1 << 30
	require.EqualValues(t, 64<<20, NewLimits(1<<30, 0, 0, p).InFlightBytes)
	p.Ahead.QueuedBytes, p.Ahead.DecodeBytes = 100<<20, 8<<20
	require.EqualValues(t, 100<<20, NewLimits(1<<30, 0, 0, p).InFlightBytes)
	require.EqualValues(t, 2<<20, NewLimits(1<<30, 0, 0, p).RawBlockBytes, "a 512th of the budget")
	small := NewLimits(1<<20, 0, 0, p)
	require.Equal(t, small.CacheBytes/4, small.InFlightBytes, "the budget is a bound, too")
}

// Pieces of a little more than half a segment would leave the rest of each empty.
func TestSegmentsHoldMoreThanHalfOfPieces(t *testing.T) {
	p := storage.DefaultProfile(storage.KindSSD)
	const mib, record = 1 << 20, 12 << 10
	for piece, want := range map[int64]int64{
		0: 2 * mib, 256<<10 + record: 2 * mib, 512<<10 + record: 2 * mib,
		mib + record:   4 * mib, // three of them
		2*mib - record: 2 * mib,
		8*mib + record: 2 * mib, // they have segments of their own
	} {
		require.Equal(t, want, NewLimits(1<<30, 0, piece, p).SegmentBytes, "pieces of %d bytes", piece)
	}
	require.EqualValues(t, 2*mib, NewLimits(128*mib, 0, mib+record, p).SegmentBytes, "there would be 32")
}
