package strategy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

func TestWhatIsInFlightFollowsTheStorage(t *testing.T) {
	p := profile.Defaults(profile.KindSSD)
	require.EqualValues(t, 128<<10, NewLimits(1<<30, 0, p).RawBlockBytes)
	p.InFlightBytes = 1 << 20
	require.EqualValues(t, 2<<20, NewLimits(1<<30, 0, p).InFlightBytes)
	p.InFlightBytes = 1 << 30
	require.EqualValues(t, 64<<20, NewLimits(1<<30, 0, p).InFlightBytes)
	p.Ahead.QueuedBytes, p.Ahead.DecodeBytes = 100<<20, 8<<20
	require.EqualValues(t, 100<<20, NewLimits(1<<30, 0, p).InFlightBytes)
	require.EqualValues(t, 2<<20, NewLimits(1<<30, 0, p).RawBlockBytes, "a 512th of the budget")
	small := NewLimits(1<<20, 0, p)
	require.Equal(t, small.CacheBytes/4, small.InFlightBytes, "the budget is a bound, too")
}
