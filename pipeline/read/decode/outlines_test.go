package decode

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type sized int64

func (s sized) MemoryBytes() int64 { return int64(s) }

func TestOutlinesAreKeptWithinABound(t *testing.T) {
	var o outlines
	require.Nil(t, o.of(1))
	o.keep(1, nil)
	o.keep(1, sized(outlineBytes+1))
	require.Nil(t, o.of(1))
	for i := range 5 {
		o.keep(i, sized(outlineBytes/3))
		o.keep(i, sized(1))
		require.Equal(t, sized(outlineBytes/3), o.of(i))
		require.LessOrEqual(t, o.bytes, int64(outlineBytes))
	}
	require.Nil(t, o.of(1))
	require.NotNil(t, o.of(2))
	o.keep(9, sized(outlineBytes))
	require.Equal(t, int64(outlineBytes), o.bytes)
	require.Nil(t, o.of(4))
}
