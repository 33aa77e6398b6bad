package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFramesAreDecodedSequentiallyWithoutRoom(t *testing.T) {
	w := NewDecoderRoom(0, 1)
	require.True(t, w.TryTake(mostAhead))
	require.False(t, w.TryTake(mostAhead), "beyond the bound")
	require.True(t, w.TryTake(LeastDecoderBytes-mostAhead))
	require.False(t, w.TryTake(1), "more members than cores can use")
	w.Give(mostAhead)
	w.Give(LeastDecoderBytes - mostAhead)
	require.False(t, w.TryTake(mostAhead+1), "a window that is given back to the system")
	require.True(t, w.TryTake(mostAhead))
	w.Give(mostAhead)
}
