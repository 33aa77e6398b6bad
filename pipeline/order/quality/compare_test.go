package quality

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func always() bool { return true }

// inOrder gives 0 … n−1.
func inOrder(n uint64) Next {
	at := uint64(0)
	return func(dst []uint64) int {
		for i := range dst {
			if at == n {
				return i
			}
			dst[i] = at
			at++
		}
		return len(dst)
	}
}

func TestOfSequenceCountsNeighboursOfOneShard(t *testing.T) {
	m := OfSequence(inOrder(1000), []uint64{0, 250, 500, 1000}, nil, always)
	require.InDelta(t, 997.0/999, m.Neighbours, 1e-12, "all but at two borders")
	require.InDelta(t, 0.25*0.25+0.25*0.25+0.5*0.5, m.Independent, 1e-12)
	require.Equal(t, 3, m.Batches)
	require.Greater(t, m.Value, 50.0)
	require.Zero(t, OfSequence(inOrder(1000), []uint64{0, 250, 500, 1000}, nil, func() bool { return false }).Batches, "given up")
}

func TestShardsAndBufferGivesEveryRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		starts := []uint64{0}
		for range rapid.IntRange(1, 6).Draw(t, "shards") {
			starts = append(starts, starts[len(starts)-1]+rapid.Uint64Range(0, 50).Draw(t, "records"))
		}
		next := ShardsAndBuffer(starts, nil, rapid.Uint64Range(0, 400).Draw(t, "size"), 1)
		var got []uint64
		dst := make([]uint64, rapid.IntRange(1, 30).Draw(t, "at a time"))
		for {
			n := next(dst)
			got = append(got, dst[:n]...)
			if n < len(dst) {
				break
			}
		}
		slices.Sort(got)
		require.Len(t, got, int(starts[len(starts)-1]))
		for i, record := range got {
			require.Equal(t, uint64(i), record)
		}
	})
}

func TestABufferOfOneKeepsShardsTogether(t *testing.T) {
	m := OfSequence(ShardsAndBuffer([]uint64{0, 500, 1000}, nil, 1, 1), []uint64{0, 500, 1000}, nil, always)
	require.InDelta(t, 998.0/999, m.Neighbours, 1e-12)
}
