package bench

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSpreadOfReturnsMedianAndExtremes(t *testing.T) {
	require.Equal(t, Spread{2, 1, 9}, spreadOf([]float64{9, 1, 2}))
	require.Equal(t, Spread{3, 1, 9}, spreadOf([]float64{9, 1, 2, 4}))
	require.Equal(t, Spread{5, 5, 5}, spreadOf([]float64{5}))
}

func at(bytesPerSecond int64) Reading { return Reading{Bytes: bytesPerSecond, Elapsed: time.Second} }

func TestRatiosCompareSameRound(t *testing.T) {
	// The machine was half as fast in the second round.
	require.Equal(t, &Spread{0.5, 0.5, 0.5}, ratio([]Reading{at(100), at(50)}, []Reading{at(200), at(100)}))
	require.Nil(t, ratio([]Reading{at(100)}, nil))
}

func TestConcurrentReaders(t *testing.T) {
	done := []ReadDone{
		{Bytes: 100, FirstBytes: 10, Began: 1, First: 6, Ended: 40, CPU: 3},
		{Bytes: 200, FirstBytes: 20, Began: 2, First: 5, Ended: 50, CPU: 4},
	}
	require.Equal(t, Reading{Bytes: 280, Elapsed: 45, CPU: 7}, Joined(done, true), "without the very first answer")
	require.Equal(t, Reading{Bytes: 300, Elapsed: 49, CPU: 7}, Joined(done, false))
	require.Equal(t, Reading{Bytes: 20, Elapsed: 48}, Joined([]ReadDone{{Bytes: 20, FirstBytes: 20, Began: 2, First: 5, Ended: 50}}, true),
		"where the first answer was all, it counts")
}

func TestRangesInFileOrderCoverSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type place struct {
			shard int32
			at    int64
		}
		want := map[place]int{}
		var extents []extent
		for range rapid.IntRange(1, 30).Draw(t, "extents") {
			x := extent{rapid.Int64Range(0, 40).Draw(t, "offset") * 8, rapid.Int32Range(0, 2).Draw(t, "shard"), 8}
			extents = append(extents, x)
			want[place{x.shard, x.offset}]++
		}
		most := rapid.Int32Range(8, 64).Draw(t, "most")
		got := map[place]int{}
		for _, x := range inFileOrder(extents, most) {
			require.LessOrEqual(t, x.size, most)
			for i := int64(0); i < int64(x.size); i += 8 {
				got[place{x.shard, x.offset + i}]++
			}
		}
		require.Equal(t, want, got)
	})
}

func TestPreadsCountRequestedAndReadBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shard")
	require.NoError(t, os.WriteFile(path, make([]byte, 10_000), 0o600))
	extents := []extent{{9_000, 0, 1_000}, {1, 0, 100}}
	p, err := newPreads([]string{path}, false, largest(extents))
	require.NoError(t, err)
	defer p.close()
	r, err := p.run(context.Background(), extents, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1_100, r.Bytes)
	require.EqualValues(t, 1_100, r.ReadBytes)
	require.EqualValues(t, 2, r.Reads)
	_, err = p.run(context.Background(), []extent{{9_999, 0, 2}}, 0)
	require.ErrorContains(t, err, "it ends before byte 10001")
}
