package listing

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// TestTableContainsListedObjects: tables are dense or sparse, on the heap or outside it, and listed
// in any order.
func TestTableContainsListedObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.SampledFrom([]int64{1, 2, 7, 1000, 200_000, 1 << 60}).Draw(t, "total")
		n := rapid.Int64Range(0, min(total, rapid.SampledFrom([]int64{10, 1000, 100_000}).Draw(t, "most"))).Draw(t, "n")
		dice := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		want := map[int64]entry{}
		var r records
		defer r.free()
		for range n {
			number := dice.Int64N(total)
			e, again := want[number]
			if !again {
				e = entry{dice.Int64(), dice.Int64(), dice.Uint64() | 1}
				want[number] = e
			}
			require.NoError(t, r.add(numbered{place{number, e}, 5}))
		}
		require.Equal(t, cap(r.list)*40 >= mappedBytes, r.mapped != nil, "large lists lie outside of the heap")
		require.NoError(t, r.settle())
		require.Len(t, r.list, len(want))
		require.True(t, slices.IsSortedFunc(r.list, func(a, b numbered) int { return int(min(max(a.number-b.number, -1), 1)) }))
		x, err := newTable(r.list, total)
		require.NoError(t, err)
		require.EqualValues(t, len(want), x.present)
		require.Equal(t, total <= 2*int64(len(want)), x.dense != nil, "dense where at least half is there")
		for number, e := range want {
			got, present := x.at(number)
			require.True(t, present)
			require.Equal(t, e, got)
		}
		for range 100 {
			number := dice.Int64N(total)
			_, present := x.at(number)
			_, wanted := want[number]
			require.Equal(t, wanted, present)
		}
	})
}

func TestPositionListedTwiceDifferentlyHasChanged(t *testing.T) {
	var r records
	require.NoError(t, r.add(numbered{place{3, entry{1, 2, 3}}, 4}))
	require.NoError(t, r.add(numbered{place{3, entry{1, 2, 3}}, 4}))
	require.NoError(t, r.settle())
	require.Len(t, r.list, 1)
	require.NoError(t, r.add(numbered{place{3, entry{1, 2, 3}}, 5}))
	require.ErrorIs(t, r.settle(), storage.ErrChanged)
}

// TestTableIsReadableWhileOthersAreFreed: memory outside the heap is freed with its table, and not
// before.
func TestTableIsReadableWhileOthersAreFreed(t *testing.T) {
	const n = 100_000
	list := make([]numbered, n)
	for round := range int64(50) {
		for i := range list {
			list[i] = numbered{place{int64(i), entry{round + 1, int64(i), 1}}, 0}
		}
		x, err := newTable(list, n)
		require.NoError(t, err)
		runtime.GC()
		for i := range int64(n) {
			e, _ := x.at(i)
			if e != (entry{round + 1, i, 1}) {
				t.Fatalf("%d: %v", i, e)
			}
		}
	}
}

func TestDigestsDifferIfObjectsDo(t *testing.T) {
	list := make([]numbered, 200)
	for i := range list {
		list[i] = numbered{place{int64(i), entry{1, 2, 3}}, 4}
	}
	was := digestOf(list)
	require.Equal(t, was, digestOf(list))
	for name, change := range map[string]func(x *numbered){
		"number": func(x *numbered) { x.number++ },
		"size":   func(x *numbered) { x.sizeBytes++ },
		"time":   func(x *numbered) { x.modTimeNanos++ },
		"inode":  func(x *numbered) { x.inode++ },
	} {
		for _, i := range []int{0, 63, 64, 199} {
			other := slices.Clone(list)
			change(&other[i])
			d := digestOf(other)
			require.NotEqual(t, was.identity, d.identity, name)
			require.Equal(t, was.changes, d.changes)
		}
	}
	other := slices.Clone(list)
	other[199].changeTimeNanos++
	d := digestOf(other)
	require.Equal(t, was.identity, d.identity)
	require.NotEqual(t, was.changes, d.changes)
	require.NotEqual(t, was.identity, digestOf(list[:199]).identity)
}
