package strategy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

func TestWhatIsInFlightFollowsTheStorage(t *testing.T) {
	p := profile.Profile{InFlightBytes: 1 << 20}
	require.EqualValues(t, 2<<20, NewLimits(1<<30, 0, p).InFlightBytes)
	p.InFlightBytes = 1 << 30
	require.EqualValues(t, MaxInFlightBytes, NewLimits(1<<30, 0, p).InFlightBytes)
	small := NewLimits(1<<20, 0, p)
	require.Equal(t, small.CacheBytes/4, small.InFlightBytes, "the budget is a bound, too")
}
