package stream

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func always() bool { return true }

func TestPrecomputedLayoutEqualsRequestedOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 10_000).Draw(t, "records")
		m := manyRecords(n)
		deal := spec.Default().Deal
		deal.Workers = uint64(rapid.IntRange(1, 5).Draw(t, "workers"))
		shuffle := rapid.SampledFrom([]spec.Shuffle{spec.ShuffleNone, spec.ShuffleFull, spec.ShuffleReservoir, spec.ShuffleBlock}).Draw(t, "shuffle")
		v := viewOf(t, n, shuffle, deal)
		shelf := &keeping{}
		src := newSource(m, m.open)
		defer src.Close()
		set := src.Set(v, shelf.shelf())
		set.Ahead(always)
		require.Equal(t, 1, shelf.stores)
		asked := src.Set(v, nil)
		for _, s := range []*Set{set, src.Set(v, shelf.shelf())} {
			got, err := s.layout(context.Background())
			require.NoError(t, err)
			want, err := asked.layout(context.Background())
			require.NoError(t, err)
			require.Equal(t, plain(want), plain(got))
		}
		again := src.Set(v, shelf.shelf())
		again.Ahead(always)
		require.True(t, again.asked(), "it has the stored one")
		require.Equal(t, 1, shelf.stores)
	})
}

func TestCancelledLayoutLeavesNothing(t *testing.T) {
	const n = 40_000
	m := manyRecords(n)
	v := viewOf(t, n, spec.ShuffleReservoir, spec.Default().Deal)
	for times := range 22 {
		shelf := &keeping{}
		src := newSource(m, m.open)
		set := src.Set(v, shelf.shelf())
		calls := 0
		set.Ahead(func() bool { calls++; return calls <= times })
		if done := calls <= times; done {
			require.Equal(t, 1, shelf.stores)
			require.Greater(t, times, 15, "it is asked every 2048 records")
		} else {
			require.Zero(t, shelf.stores)
			require.False(t, set.asked())
		}
		got, err := set.layout(context.Background())
		require.NoError(t, err)
		require.Equal(t, plain(wholeSweep(m, v)), plain(got))
		src.Close()
		require.Equal(t, 1, shelf.stores)
	}
}

func TestRequestsDoNotWaitForPrecomputedLayouts(t *testing.T) {
	const n = 40_000
	m := manyRecords(n)
	v := viewOf(t, n, spec.ShuffleReservoir, spec.Default().Deal)
	shelf := &keeping{}
	src := newSource(m, m.open)
	set := src.Set(v, shelf.shelf())
	calls := 0
	set.Ahead(func() bool {
		if calls++; calls == 3 { // it is blocked here
			got, err := set.layout(context.Background())
			require.NoError(t, err)
			require.Equal(t, plain(wholeSweep(m, v)), plain(got))
		}
		return true
	})
	require.Equal(t, 3, calls, "it was given up")
	src.Close()
	require.Equal(t, 1, shelf.stores)
}

func TestClosingSourceStopsPrecomputing(t *testing.T) {
	const n = 40_000
	m := manyRecords(n)
	src := newSource(m, m.open)
	set := src.Set(viewOf(t, n, spec.ShuffleFull, spec.Default().Deal), nil)
	calls := 0
	set.Ahead(func() bool {
		if calls++; calls == 3 {
			src.Close()
		}
		return true
	})
	require.Equal(t, 3, calls)
	require.False(t, set.asked())
}

func TestFirstOpenOfDataFileStartsSet(t *testing.T) {
	m := manyRecords(10)
	src := newSource(m, m.open)
	defer src.Close()
	set := src.Set(viewOf(t, 10, spec.ShuffleNone, spec.Default().Deal), nil)
	begun := 0
	set.OnBegin(func() { begun++ })
	for _, k := range []Kind{IDs, Offsets} {
		set.Open(0, k).Close()
	}
	require.Zero(t, begun)
	for range 3 {
		set.Open(0, Data).Close()
	}
	require.Equal(t, 1, begun)
}
