package profile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPossibleIsBestRateOfReadsOfSimilarSize(t *testing.T) {
	measured := []Cell{
		{ReadBytes: 64 << 10, Depth: 1, BytesPerSecond: 1e8}, {ReadBytes: 64 << 10, Depth: 8, BytesPerSecond: 4e8},
		{ReadBytes: 1 << 20, Depth: 1, BytesPerSecond: 9e8}, {ReadBytes: 1 << 20, Depth: 4, BytesPerSecond: 2e9},
		{ReadBytes: 4 << 10, Depth: 1, BytesPerSecond: 1e7},
	}
	for _, c := range []struct {
		readBytes float64
		want      float64
	}{{100 << 10, 4e8}, {64 << 10, 4e8}, {1 << 20, 2e9}, {9 << 20, 2e9}, {5000, 1e7}, {100, 1e7}} {
		require.Equal(t, c.want, Possible(measured, c.readBytes), c.readBytes)
	}
	require.Zero(t, Possible(nil, 1<<20))
}
