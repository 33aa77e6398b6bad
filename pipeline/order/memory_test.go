package order

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// count returns what a memory holds, counted item by item.
func (m *Memory) count() (pages, walkers int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for it := m.recent.older; it != &m.recent; it = it.older {
		bytes += it.bytes
		if it.page != nil {
			pages++
		} else {
			walkers++
		}
	}
	return pages, walkers, bytes
}

func TestViewsSharingMemoryStayWithinItsBound(t *testing.T) {
	const total, bound = 40 * pageRecords, 3 << 20
	o := spec.Default().Order
	o.SizeRecords = 4096
	epochs := []*Epoch{newEpoch(t, o, 0, manyChunks(total)), newEpoch(t, o, 1, manyChunks(total))}
	g := [][]uint64{allOf(epochs[0]), allOf(epochs[1])}
	m := NewMemory(bound)
	var views []*View
	for i := range 60 {
		v, err := m.View(epochs[i%2], []Done{First(uint64(i), o)}, deal(1, 1))
		require.NoError(t, err)
		views = append(views, v)
	}
	reads := 500
	if testing.Short() {
		reads = 150 // of pages, which fill the memory many times over
	}
	var wg sync.WaitGroup
	for reader := range uint64(4) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(reader, 1))
			got := make([]uint64, 100)
			for range reads {
				i := random.IntN(len(views))
				k := random.IntN(total - len(views) - len(got))
				views[i].Records(0, uint64(k), got)
				if want := g[i%2][k+i:][:len(got)]; !slices.Equal(want, got) {
					t.Errorf("view %d from %d on has other records", i, k)
				}
				if held := m.HeldBytes(); held > bound {
					t.Errorf("%d bytes are held", held)
				}
			}
		})
	}
	wg.Wait()
	pages, walkers, bytes := m.count()
	require.Equal(t, m.HeldBytes(), bytes)
	require.Equal(t, len(m.pages), pages)
	require.Equal(t, m.idle, walkers)
	idle := 0
	for _, v := range views {
		idle += len(v.rest.idle)
	}
	require.Equal(t, idle, walkers)
	require.Positive(t, walkers)
	require.Greater(t, pages, leastPages/2)
	require.Empty(t, m.turns)
}

func TestLargeWalkersKeepMinimumOfPages(t *testing.T) {
	const total = 40 * pageRecords
	o := spec.Default().Order
	o.SizeRecords = 300_000
	m := NewMemory(1) // less than any item takes
	v, err := m.View(newEpoch(t, o, 0, manyChunks(total)), nil, deal(1, 1))
	require.NoError(t, err)
	one := make([]uint64, 1)
	for k := range uint64(40) {
		v.Records(0, k*pageRecords, one)
	}
	pages, walkers, _ := m.count()
	require.Equal(t, leastPages, pages)
	require.Equal(t, 1, walkers, "one reader needs one, and nobody makes a second")
}

func TestLeastRecentlyUsedIsEvictedFirst(t *testing.T) {
	e := plainEpoch(t, 100*pageRecords)
	m := NewMemory((leastPages + 10) * 8 * pageRecords)
	var views [2]*View
	for i := range views {
		var err error
		views[i], err = m.View(e, nil, deal(1, 1))
		require.NoError(t, err)
	}
	one := make([]uint64, 1)
	views[0].Records(0, 0, one)
	for k := range uint64(90) {
		views[1].Records(0, k*pageRecords, one)
		views[0].Records(0, 0, one) // again and again
	}
	require.Contains(t, m.pages, pageKey{views[0].rest, 0})
	require.NotContains(t, m.pages, pageKey{views[1].rest, 0})
}

func TestEvictedEpochsAreArrangedAgainOnDemand(t *testing.T) {
	const total = 3 * spacingPositions
	o := spec.Default().Order
	m := NewMemory(0)
	var epochs []*Epoch
	var views []*View
	arranged := func() (n int) {
		for _, e := range epochs {
			if e.arranged.Load() != nil {
				n++
			}
		}
		return n
	}
	got := make([]uint64, 50)
	for i := range 3 * keptArrangements {
		e := newEpoch(t, o, uint64(i), manyChunks(total))
		v, err := m.View(e, nil, deal(1, 1))
		require.NoError(t, err)
		epochs, views = append(epochs, e), append(views, v)
		v.Records(0, total/2, got)
		require.LessOrEqual(t, arranged(), keptArrangements)
	}
	for _, e := range epochs {
		for _, it := range viewOf(views, e).rest.idle {
			require.Same(t, e.arranged.Load(), it.walker.source.cursor.arrangement, "no walker keeps what was dropped")
		}
	}
	// Whatever was dropped, the records are the same.
	for i, v := range views {
		want := newEpoch(t, o, uint64(i), manyChunks(total))
		c := want.Cursor(total - 1000)
		same := make([]uint64, len(got))
		c.Next(same)
		v.Records(0, total-1000, got)
		require.Equal(t, same, got, "epoch %d", i)
	}
	require.LessOrEqual(t, arranged(), keptArrangements)
}

func TestPinnedEpochKeepsItsStates(t *testing.T) {
	const total = 3 * spacingPositions
	o := spec.Default().Order
	m := NewMemory(0)
	e := newEpoch(t, o, 0, manyChunks(total))
	v, err := m.View(e, nil, deal(1, 1))
	require.NoError(t, err)
	release := v.Hold()
	runParts(e.Prepare(), func() bool { return false })
	others := func() {
		for i := range 3 * keptArrangements {
			_, err := m.View(newEpoch(t, o, uint64(1+i), manyChunks(1000)), nil, deal(1, 1))
			require.NoError(t, err)
		}
	}
	others()
	require.True(t, e.Prepared())
	release()
	others()
	require.Nil(t, e.arranged.Load())
	require.False(t, e.Prepared())
}

func viewOf(views []*View, e *Epoch) *View {
	return views[slices.IndexFunc(views, func(v *View) bool { return v.epoch == e })]
}
