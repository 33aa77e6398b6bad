package order

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// manyChunks returns chunks of uneven sizes, with total records together.
func manyChunks(total uint64) []uint64 {
	var chunks []uint64
	for n := uint64(0); n < total; {
		size := min(uint64(len(chunks))*7919%200+1, total-n)
		chunks = append(chunks, size)
		n += size
	}
	return chunks
}

func TestNewEpochRefusesInvalidOrders(t *testing.T) {
	good := spec.Default().Order
	for words, change := range map[string]func(*spec.Order, *[]uint64){
		`unknown shuffle "best"`:                    func(o *spec.Order, _ *[]uint64) { o.Shuffle = "best" },
		"lanes (0) must be between 1 and 65536":     func(o *spec.Order, _ *[]uint64) { o.Lanes = 0 },
		"lanes (65537) must be between 1 and 65536": func(o *spec.Order, _ *[]uint64) { o.Lanes = 65537 },
		"groups (0) must divide lanes (32)":         func(o *spec.Order, _ *[]uint64) { o.Groups = 0 },
		"groups (5) must divide lanes (32)":         func(o *spec.Order, _ *[]uint64) { o.Groups = 5 },
		"batch (0) must be between 1":               func(o *spec.Order, _ *[]uint64) { o.Batch = 0 },
		"batch (2) must be 1 when groups is 1":      func(o *spec.Order, _ *[]uint64) { o.Batch = 2 },
		"batch (4294967297) must be between":        func(o *spec.Order, _ *[]uint64) { o.Groups, o.Batch = 2, 1<<32+1 },
		"must start at record 0":                    func(_ *spec.Order, s *[]uint64) { *s = nil },
		"first chunk must start at record 0":        func(_ *spec.Order, s *[]uint64) { *s = []uint64{1, 2} },
		"chunk 2 starts at record 5, which is not":  func(_ *spec.Order, s *[]uint64) { *s = []uint64{0, 5, 5} },
		"records are more than":                     func(_ *spec.Order, s *[]uint64) { *s = []uint64{0, MaxRecords + 1} },
	} {
		o, starts := good, []uint64{0, 5, 9}
		change(&o, &starts)
		_, err := NewEpoch(o, 0, starts, nil)
		require.ErrorContains(t, err, words)
	}
}

func TestEmptyDatasetHasEmptyOrder(t *testing.T) {
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
		o := spec.Default().Order
		o.Shuffle = shuffle
		e, err := NewEpoch(o, 0, []uint64{0}, nil)
		require.NoError(t, err)
		require.Zero(t, e.Len())
		require.Zero(t, e.Cursor(0).Next(make([]uint64, 1)))
		deal := spec.Default().Deal
		deal.Tail = spec.TailPad
		v, err := NewView(e, []Done{{Batch: 1, Consumed: []uint64{0, 0}}}, deal)
		require.NoError(t, err)
		require.Zero(t, v.Dealt())
		v.Sweep(0, v.Dealt(), func(uint64, []uint64) bool { t.Fatal("nothing to visit"); return true })
	}
}

func TestCursorStopsAtEnd(t *testing.T) {
	e := newEpoch(t, spec.Default().Order, 0, []uint64{5})
	require.Panics(t, func() { e.Cursor(6) })
	require.Zero(t, e.Cursor(5).Next(make([]uint64, 1)))
}

// The walk passes several kept states, and cursors that find them in different ways are compared
// with the naive implementation.
func TestSeeksUseCachedStates(t *testing.T) {
	const total = 3*spacingPositions + 12_345
	for _, o := range []spec.Order{
		{Seed: 3, Shuffle: spec.ShuffleReservoir, SizeRecords: 3000, Lanes: 7, Groups: 1, Batch: 1},
		{Seed: 3, Shuffle: spec.ShuffleReservoir, SizeRecords: 3000, Lanes: 12, Groups: 3, Batch: 10},
	} {
		chunks := manyChunks(total)
		want := naiveG(o, 1, chunks)
		e := newEpoch(t, o, 1, chunks)
		check := func(c *Cursor, p uint64) {
			t.Helper()
			got := make([]uint64, min(1000, e.Len()-p))
			c.Seek(p)
			require.Equal(t, len(got), c.Next(got))
			require.True(t, slices.Equal(want[p:][:len(got)], got), "at %d", p)
		}
		c := e.Cursor(0)
		for _, p := range []uint64{2*spacingPositions + 17, 5, spacingPositions, spacingPositions - 1, total - 3, 2 * spacingPositions, total, 3*spacingPositions - 500, 0} {
			check(c, p)
			check(e.Cursor(0), p)
			check(e.Cursor(total/2), p)
		}
		require.True(t, slices.Equal(want, walk(t, e.Cursor(0), total, 5000)))
	}
}

// The memory of all states together is small compared with the dataset, however large the
// reservoirs are.
func TestCachedStatesAreBounded(t *testing.T) {
	for _, size := range []uint64{1, 16384, 100_000, 5_000_000, 1 << 40} {
		for _, lanes := range []uint64{1, 32, 65536} {
			const total = 5_000_000
			l := newLayout(layoutOptions{size: size, lanes: lanes, groups: 1, step: 1}, total, newChunks(0, 0, []uint64{0, total}))
			r := newReservoirs[uint32](l, total)
			require.LessOrEqual(t, uint64(len(r.kept)-1)*r.slots, uint64(total/spacingPerSlot))
			require.GreaterOrEqual(t, r.spacing, uint64(spacingPositions))
		}
	}
}

func TestAnyPassingCursorCachesStates(t *testing.T) {
	const total = 3*spacingPositions + 10
	l := newLayout(layoutOptions{size: 100, lanes: 4, groups: 1, step: 1}, total, newChunks(0, 0, []uint64{0, total}))
	kept := func(r *reservoirs[uint32]) (at []int) {
		for i := range r.kept {
			if r.kept[i].Load() != nil {
				at = append(at, i)
			}
		}
		return at
	}
	r := newReservoirs[uint32](l, total)
	w := r.walker()
	w.seek(0, 2*spacingPositions+5)
	require.Equal(t, []int{1, 2}, kept(r))
	w.next(2*spacingPositions+5, make([]uint64, spacingPositions))
	require.Equal(t, []int{1, 2, 3}, kept(r))

	r = newReservoirs[uint32](l, total)
	r.walker().next(0, make([]uint64, spacingPositions+1))
	require.Equal(t, []int{1}, kept(r))

	// The nearest: from the cursor's position, from a state, or from the start.
	at := &reservoirWalker[uint32]{shared: r}
	for _, c := range [][3]uint64{
		{0, 5, 0}, {7, 9, 7}, {9, 7, 0}, {7, spacingPositions - 1, 7}, {7, spacingPositions, spacingPositions},
		{7, total, spacingPositions}, {spacingPositions, total, spacingPositions}, {spacingPositions + 1, total, spacingPositions + 1},
		{total, spacingPositions + 3, spacingPositions}, {total, spacingPositions - 1, 0}, {2 * spacingPositions, total, 2 * spacingPositions},
	} {
		require.Equal(t, c[2], at.nearest(c[0], c[1]), "from %d to %d", c[0], c[1])
	}
}

// Above 2^32 records slots have 64 bits; the shuffle is the same.
func TestWideSlotsShuffleLikeNarrowOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		if s.order.Shuffle != spec.ShuffleReservoir && s.order.Shuffle != spec.ShuffleBlock {
			s.order.Shuffle = spec.ShuffleBlock
			s.g = naiveG(s.order, s.epoch, s.chunks)
		}
		e := s.newEpoch(t)
		shuffled[uint64](e, func() *layout {
			return newLayout(layoutOptions{
				seed: s.order.Seed, epoch: s.epoch, size: s.order.SizeRecords,
				lanes: s.order.Lanes, groups: s.order.Groups, step: s.order.Batch,
			}, e.total, newChunks(s.order.Seed, s.epoch, startsOf(s.chunks)))
		})
		require.Equal(t, s.g, allOf(e))
	})
}

func TestHugeDatasetsAreSeekableAnywhere(t *testing.T) {
	const total = uint64(1) << 40
	for _, o := range []spec.Order{
		{Seed: 1, Shuffle: spec.ShuffleBlock, SizeRecords: 64, Lanes: 4, Groups: 2, Batch: 1 << 20},
		{Seed: 1, Shuffle: spec.ShuffleFull, SizeRecords: 64, Lanes: 4, Groups: 1, Batch: 1},
	} {
		e, err := NewEpoch(o, 0, []uint64{0, total / 3, total}, nil)
		require.NoError(t, err)
		got := make([]uint64, 100)
		for _, p := range []uint64{0, math.MaxUint32, total / 2, total - 100} {
			require.Equal(t, 100, e.Cursor(p).Next(got))
			for _, record := range got {
				require.Less(t, record, total)
			}
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(got))), 100)
		}
	}
}

func TestCursorsOfOneEpochRunConcurrently(t *testing.T) {
	const total = spacingPositions + 20_000
	o := spec.Order{Seed: 9, Shuffle: spec.ShuffleReservoir, SizeRecords: 500, Lanes: 4, Groups: 1, Batch: 1}
	chunks := manyChunks(total)
	want := naiveG(o, 0, chunks)
	e := newEpoch(t, o, 0, chunks)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			got := make([]uint64, 3000)
			p := uint64(spacingPositions - 1000 + 100*i)
			if n := e.Cursor(p).Next(got); n != len(got) || !slices.Equal(want[p:][:n], got) {
				t.Errorf("cursor %d is wrong", i)
			}
		})
	}
	wg.Wait()
}

func TestNextDoesNotAllocate(t *testing.T) {
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
		o := spec.Default().Order
		o.Shuffle = shuffle
		c := newEpoch(t, o, 0, manyChunks(200_000)).Cursor(0)
		dst := make([]uint64, 1000)
		require.Zero(t, testing.AllocsPerRun(50, func() { c.Next(dst) }), shuffle)
	}
}
