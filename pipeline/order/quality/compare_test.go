package quality

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func always() bool { return true }

// inOrder returns a Source of 0 … n−1.
func inOrder(n uint64) Source {
	return func(k uint64, dst []uint64) int {
		for i := range dst {
			if k+uint64(i) >= n {
				return i
			}
			dst[i] = k + uint64(i)
		}
		return len(dst)
	}
}

func TestSurveyCountsNeighboursFromOneShard(t *testing.T) {
	m, picture := Survey(inOrder(1000), []uint64{0, 250, 500, 1000}, nil, Resolution{}, always)
	require.Nil(t, picture)
	require.InDelta(t, 997.0/999, m.Neighbours, 1e-12, "all but at two borders")
	require.InDelta(t, 0.25*0.25+0.25*0.25+0.5*0.5, m.Independent, 1e-12)
	require.Equal(t, 3, m.Batches)
	require.Greater(t, m.Value, 50.0)
	m, _ = Survey(inOrder(1000), []uint64{0, 250, 500, 1000}, nil, Resolution{}, func() bool { return false })
	require.Zero(t, m.Batches, "given up")
}

func TestShardsAndBufferDeliversEveryRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		starts := []uint64{0}
		for range rapid.IntRange(1, 6).Draw(t, "shards") {
			starts = append(starts, starts[len(starts)-1]+rapid.Uint64Range(0, 50).Draw(t, "records"))
		}
		next := ShardsAndBuffer(starts, nil, rapid.Uint64Range(0, 400).Draw(t, "size"), 1)
		var got []uint64
		dst := make([]uint64, rapid.IntRange(1, 30).Draw(t, "at a time"))
		for {
			n := next(uint64(len(got)), dst)
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

func TestBufferOfOneKeepsShardsTogether(t *testing.T) {
	m, _ := Survey(ShardsAndBuffer([]uint64{0, 500, 1000}, nil, 1, 1), []uint64{0, 500, 1000}, nil, Resolution{}, always)
	require.InDelta(t, 998.0/999, m.Neighbours, 1e-12)
}

func TestShardsAndBufferTraversesSkippedRecords(t *testing.T) {
	starts := []uint64{0, 700, 1000}
	all, some := make([]uint64, 1000), make([]uint64, 100)
	require.Equal(t, 1000, ShardsAndBuffer(starts, nil, 50, 1)(0, all))
	next := ShardsAndBuffer(starts, nil, 50, 1)
	for _, at := range []uint64{0, 300, 850} {
		require.Equal(t, 100, next(at, some))
		require.Equal(t, all[at:at+100], some)
	}
	require.Equal(t, 10, next(990, some))
	require.Zero(t, next(2000, some))
}

func TestPictureShowsOrderOfShards(t *testing.T) {
	starts := []uint64{0, 4000, 8000, 8000, 16000} // one shard is empty
	for name, r := range map[string]Resolution{
		"all records": {Columns: 8, Rows: 100},
		"stretches":   {Columns: 8, Rows: 100, LimitRecords: 8 * BatchRecords},
	} {
		t.Run(name, func(t *testing.T) {
			mix, p := Survey(inOrder(16000), starts, nil, r, always)
			require.Equal(t, r.LimitRecords == 0, mix.Whole)
			require.Equal(t, 3, p.Shards)
			require.Equal(t, []int{8, 3}, []int{p.Columns, p.Rows})
			// In order, a column (an eighth) has records of one shard, which has a quarter or half
			// of them.
			require.Equal(t, []float32{
				4, 4, 0, 0, 0, 0, 0, 0,
				0, 0, 4, 4, 0, 0, 0, 0,
				0, 0, 0, 0, 2, 2, 2, 2,
			}, p.Density)
			if r.LimitRecords > 0 {
				require.Equal(t, 8, mix.Batches, "no more is looked at")
				require.InDelta(t, 256.0/3, p.Expected, 1e-9)
				require.InDelta(t, 1, mix.Neighbours, 1e-12, "none across stretches")
			}
		})
	}
}

func TestPictureOfManyShardsIsBounded(t *testing.T) {
	var starts []uint64
	for s := range uint64(100_001) {
		starts = append(starts, 3*s)
	}
	_, p := Survey(inOrder(300_000), starts, nil, Resolution{Columns: 400, Rows: 100}, always)
	require.Equal(t, []int{375, 100}, []int{p.Columns, p.Rows}, "eight records a cell")
	require.InDelta(t, 8, p.Expected, 0.01)
	_, p = Survey(inOrder(3), []uint64{0, 1, 2, 3}, nil, Resolution{Columns: 400, Rows: 100}, always)
	require.Equal(t, []int{1, 1}, []int{p.Columns, p.Rows})
}
