package order

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newView(t *testing.T, e *Epoch, done []Done, d spec.Assignment) *View {
	t.Helper()
	v, err := NewView(e, done, d)
	require.NoError(t, err)
	return v
}

func deal(workers, batch uint64) spec.Assignment {
	return spec.Assignment{Workers: workers, Batch: batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
}

// plainEpoch returns an epoch in dataset order: G[p] is p.
func plainEpoch(t *testing.T, total uint64) *Epoch {
	return newEpoch(t, spec.Order{Shuffle: spec.ShuffleNone, Lanes: 1, Groups: 1, Batch: 1}, 0, []uint64{total})
}

func TestNewViewRefusesInvalidArguments(t *testing.T) {
	grouped := spec.Order{Shuffle: spec.ShuffleBlock, Lanes: 4, Groups: 2, Batch: 8}
	for _, c := range []struct {
		order spec.Order
		done  []Done
		deal  spec.Assignment
		words string
	}{
		{deal: deal(0, 1), words: "workers (0) must be between 1 and 65536"},
		{deal: deal(65537, 1), words: "workers (65537) must be between"},
		{deal: deal(1, 0), words: "batch (0) must be between 1 and 4294967296"},
		{deal: deal(1, 1<<32+1), words: "batch (4294967297) must be between"},
		{deal: spec.Assignment{Workers: 1, Batch: 1, Dealing: "fair", Tail: spec.TailKeep}, words: `unknown deal "fair"`},
		{deal: spec.Assignment{Workers: 1, Batch: 1, Dealing: spec.DealInterleaved, Tail: "cut"}, words: `unknown tail "cut"`},
		{order: grouped, deal: deal(1, 4), words: "batch (4) must be the order's batch (8)"},
		{order: grouped, deal: spec.Assignment{Workers: 1, Batch: 8, Dealing: spec.DealContiguous, Tail: spec.TailPad}, words: "tail pad with the deal contiguous"},
		{order: grouped, deal: deal(1, 8), done: []Done{{Batch: 1, Consumed: []uint64{1}}}, words: "entry 1 of done: batch (1) must be the order's batch (8)"},
		{deal: deal(1, 1), done: []Done{{Batch: 1}}, words: "consumed has 0 numbers"},
		{deal: deal(1, 1), done: []Done{{Batch: 0, Consumed: []uint64{1}}}, words: "batch (0) must be between"},
		{deal: deal(1, 1), done: []Done{{Batch: 1, Dealing: "fair", Consumed: []uint64{1}}}, words: `deal ("fair")`},
		{deal: deal(1, 1), done: []Done{{Batch: 2, Dealing: spec.DealContiguous, Consumed: []uint64{1}}}, words: "batch (2) must be 1 with the deal contiguous"},
		{deal: deal(1, 1), done: []Done{{Batch: 1, Consumed: []uint64{50}}, {Batch: 1, Consumed: []uint64{25, 26}}}, words: "entry 2 of done: worker 1 of 2 took 26 records, but was dealt 25"},
	} {
		if c.order.Lanes == 0 {
			c.order = spec.Order{Shuffle: spec.ShuffleNone, Lanes: 1, Groups: 1, Batch: 1}
		}
		_, err := NewView(newEpoch(t, c.order, 0, []uint64{100}), c.done, c.deal)
		require.ErrorContains(t, err, c.words)
	}
}

func TestNonexistentWorkersPanic(t *testing.T) {
	v := newView(t, plainEpoch(t, 10), nil, deal(2, 1))
	require.Panics(t, func() { v.Count(2) })
	require.Panics(t, func() { v.Own(2) })
	require.Panics(t, func() { v.Records(2, 0, nil) })
	require.Panics(t, func() { v.Owner(10) })
}

func TestHugeCountsDoNotOverflow(t *testing.T) {
	e := plainEpoch(t, MaxRecords)
	got := make([]uint64, 2)
	for _, d := range []spec.Assignment{
		{Workers: 65536, Batch: 1 << 32, Dealing: spec.DealInterleaved, Tail: spec.TailKeep},
		{Workers: 65536, Batch: 1 << 32, Dealing: spec.DealInterleaved, Tail: spec.TailPad},
		{Workers: 65535, Batch: 1, Dealing: spec.DealContiguous, Tail: spec.TailKeep},
	} {
		v := newView(t, e, nil, d)
		w, k := v.Owner(v.Dealt() - 1)
		require.Equal(t, v.Count(w)-1, k)
		require.Equal(t, 1, v.Records(w, k, got))
		w, k = v.Owner(MaxRecords - 1)
		require.NotZero(t, v.Records(w, k, got))
		require.Equal(t, uint64(MaxRecords-1), got[0])
	}

	// All workers took half of what they had, in the largest possible rounds.
	for _, d := range []Done{
		{Batch: MaxRecords, Consumed: make([]uint64, 65536)},
		{Batch: MaxRecords / 65536 / 3, Consumed: make([]uint64, 65536)},
		{Batch: 1, Dealing: spec.DealContiguous, Consumed: make([]uint64, 65536)},
	} {
		table := d.table(MaxRecords)
		for w := range d.Consumed {
			d.Consumed[w] = table.count(uint64(w)) / 2
		}
		l := newLevel(MaxRecords, d)
		for _, j := range []uint64{0, 1, l.left / 3, l.left / 2, l.left - 1} {
			p := l.origin(j)
			s := table.at(p)
			require.GreaterOrEqual(t, s.k, d.Consumed[s.w], "position %d was taken", p)
			below := uint64(0)
			for w, c := range d.Consumed {
				n := table.countBelow(uint64(w), p)
				below += n - min(n, c)
			}
			require.Equal(t, j, below)
		}
	}
}

func TestBatchesAreReachableFromAnyEntry(t *testing.T) {
	v := newView(t, plainEpoch(t, 10), []Done{{Batch: MaxRecords, Consumed: []uint64{4, 0, 0}}}, deal(1, 1))
	got := make([]uint64, 20)
	require.Equal(t, []uint64{4, 5, 6, 7, 8, 9}, got[:v.Records(0, 0, got)])
}

// Many readers at once, across more pages than are kept, in any order.
func TestConcurrentReadersOfAllPages(t *testing.T) {
	const total, keeps = 70 * pageRecords, 64 // pages
	o := spec.Order{Seed: 5, Shuffle: spec.ShuffleFull, Lanes: 1, Groups: 1, Batch: 1}
	e := newEpoch(t, o, 0, []uint64{total})
	d := Done{Batch: 100, Dealing: spec.DealInterleaved, Consumed: []uint64{150_000, 10, 70_000}}
	want := naiveResume(allOf(e), d)
	m := NewMemory(keeps * 8 * pageRecords)
	v, err := m.View(e, []Done{d}, deal(5, 7))
	require.NoError(t, err)
	places := naiveDeal(uint64(len(want)), 5, 7, spec.DealInterleaved)
	var wg sync.WaitGroup
	for w := range uint64(5) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(w, 0))
			got := make([]uint64, 900)
			for range 40 {
				k := random.IntN(len(places[w]))
				n := v.Records(w, uint64(k), got)
				for i := range n {
					if got[i] != want[places[w][k+i]] {
						t.Errorf("worker %d: record %d is %d instead of %d", w, k+i, got[i], want[places[w][k+i]])
						return
					}
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, m.HeldBytes(), m.most)
	require.Empty(t, m.turns)
}

// counting counts the records that are produced.
type counting struct {
	straight
	made *atomic.Uint64
}

func (c counting) next(p uint64, dst []uint64) {
	c.made.Add(uint64(len(dst)))
	c.straight.next(p, dst)
}

func TestPageIsComputedOnceForAllReaders(t *testing.T) {
	const total = 10 * pageRecords
	var made atomic.Uint64
	e := plainEpoch(t, total)
	e.arranged.Store(&arrangement{start: func() walker { return counting{made: &made} }})
	v := newView(t, e, nil, deal(4, 1))
	var wg sync.WaitGroup
	for w := range uint64(4) {
		wg.Go(func() {
			got := make([]uint64, 100)
			for k := uint64(0); k < v.Count(w); k += 100 {
				v.Records(w, k, got)
			}
		})
	}
	wg.Wait()
	require.Equal(t, uint64(total), made.Load())
}

func TestSequentialReadsReuseParkedWalker(t *testing.T) {
	v := newView(t, plainEpoch(t, 100*pageRecords), []Done{{Batch: 1, Consumed: []uint64{5, 9}}}, deal(1, 1))
	got := make([]uint64, 1)
	for k := uint64(0); k < v.Count(0); k += pageRecords {
		require.Equal(t, 1, v.Records(0, k, got))
	}
	require.Len(t, v.rest.idle, 1)
	require.Equal(t, 1, v.memory.idle)
}

func TestRecordsDoNotAllocateForCachedPages(t *testing.T) {
	e := newEpoch(t, spec.Default().Order, 0, manyChunks(100_000))
	for _, done := range [][]Done{nil, {{Batch: 1, Consumed: []uint64{3, 5}}}} {
		v := newView(t, e, done, deal(4, 3))
		dst := make([]uint64, 30_000)
		v.Records(0, 0, dst)
		require.Zero(t, testing.AllocsPerRun(50, func() { v.Records(3, 1000, dst[:500]) }))
	}
}

func TestSweepStopsEarlyAndLeavesPagesAlone(t *testing.T) {
	v := newView(t, plainEpoch(t, 100_000), nil, spec.Assignment{Workers: 3, Batch: 50_000, Dealing: spec.DealInterleaved, Tail: spec.TailPad})
	blocks := 0
	v.Sweep(0, v.Dealt(), func(uint64, []uint64) bool { blocks++; return blocks < 3 })
	require.Equal(t, 3, blocks)
	var seen uint64
	v.Sweep(0, v.Dealt(), func(j uint64, records []uint64) bool {
		seen = j + uint64(len(records))
		return j < 100_000 // stop at the first block of padding
	})
	require.Greater(t, seen, uint64(100_000))
	require.Less(t, seen, v.Dealt())
	require.Empty(t, v.memory.pages)
}

func TestSimplifySharesNothingWithItsInput(t *testing.T) {
	done := []Done{{Batch: 1, Consumed: []uint64{5, 1}}, {Batch: 1, Consumed: []uint64{2}}}
	simple, err := Simplify(100, spec.Default().Order, done)
	require.NoError(t, err)
	simple[0].Consumed[0], simple[1].Consumed[0] = 7, 7
	require.Equal(t, []Done{{Batch: 1, Consumed: []uint64{5, 1}}, {Batch: 1, Consumed: []uint64{2}}}, done)
	simple, err = Simplify(100, spec.Default().Order, []Done{{Batch: 1, Consumed: []uint64{0, 0}}})
	require.NoError(t, err)
	require.Empty(t, simple)
}

// An uninterrupted run and one that was stopped after whole rounds of batches have the same batches
// from there on.
func TestBatchesContinueAfterWholeRounds(t *testing.T) {
	e := newEpoch(t, spec.Default().Order, 0, manyChunks(10_000))
	whole := newView(t, e, nil, deal(4, 16))
	rest := newView(t, e, []Done{{Batch: 16, Consumed: []uint64{320, 320, 320, 320}}}, deal(4, 16))
	a, b := make([]uint64, 2000), make([]uint64, 2000)
	for w := range uint64(4) {
		n := whole.Records(w, 320, a)
		require.True(t, slices.Equal(a[:n], b[:rest.Records(w, 0, b)]))
	}
}
