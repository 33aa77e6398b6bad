package index

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBitsRoundTripAtEveryWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := uint(rapid.IntRange(0, 64).Draw(t, "width"))
		values := rapid.SliceOfN(rapid.Uint64(), 0, 200).Draw(t, "values")
		lead := rapid.IntRange(0, 9).Draw(t, "lead")
		for i := range values {
			if w < 64 {
				values[i] &= 1<<w - 1
			}
		}
		b := appendBits(make([]byte, lead), w, values)
		require.EqualValues(t, lead+int(bitsBytes(uint64(len(values)), w)), len(b))
		for i, v := range values {
			require.Equal(t, v, bitsAt(b, uint64(lead), w, uint64(i)), "value %d", i)
		}
		n := rapid.IntRange(0, len(values)).Draw(t, "n")
		var sum uint64
		want := make([]int64, n)
		for i, v := range values[:n] {
			sum += v
			want[i] = 17 + int64(v)
		}
		require.Equal(t, sum, sumBits(b, uint64(lead), w, uint64(n)))
		got := make([]int64, n)
		addBits(got, b, uint64(lead), w, 17)
		require.Equal(t, want, got)
	})
}
