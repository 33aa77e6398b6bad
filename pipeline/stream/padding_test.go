package stream

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// patience is how long tests wait for what must not take long.
const patience = 90 * time.Second

// padded is an assignment that is almost all padding.
func padded(workers, batch uint64) spec.Assignment {
	return spec.Assignment{Workers: workers, Batch: batch, Dealing: spec.DealInterleaved, Tail: spec.TailPad}
}

func TestLookupInEndlessPaddingBlocksNoOtherAndStopsWithItsClient(t *testing.T) {
	const n = 1000
	m := manyRecords(n)
	for name, batch := range map[string]uint64{"more than anybody would wait for": 1 << 32, "a minute of one core": maxPadding / spec.MaxWorkers} {
		t.Run(name, func(t *testing.T) {
			src := newSource(m, m.open)
			defer src.Close()
			endless := src.Set(viewOf(t, n, spec.ShuffleReservoir, padded(spec.MaxWorkers, batch)), nil)
			ctx, gone := context.WithCancel(context.Background())
			asked := make(chan error, 1)
			go func() {
				_, err := endless.SizeBytes(ctx, 0, Data)
				asked <- err
			}()
			require.Eventually(t, func() bool {
				endless.mu.Lock()
				defer endless.mu.Unlock()
				return endless.pending != nil
			}, patience, time.Millisecond)

			others, stop := context.WithTimeout(context.Background(), patience)
			defer stop()
			for _, deal := range []spec.Assignment{spec.Default().Deal, padded(3, 7)} {
				_, err := src.Set(viewOf(t, n, spec.ShuffleReservoir, deal), nil).SizeBytes(others, 0, Data)
				require.NoError(t, err)
			}
			gone()
			require.Error(t, <-asked)
			ended := make(chan struct{})
			go func() { src.work.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(patience):
				require.Fail(t, "it goes on, though nobody waits for it")
			}
		})
	}
}

func TestExcessivePaddingIsRefusedWithExplanation(t *testing.T) {
	const n = 1000
	m := manyRecords(n)
	src := newSource(m, m.open)
	defer src.Close()
	_, err := src.Set(viewOf(t, n, spec.ShuffleReservoir, padded(2, 1<<32)), nil).SizeBytes(context.Background(), 0, Data)
	require.ErrorContains(t, err, "padding after the 1000 of the dataset")
	require.ErrorContains(t, err, "--batch")
	set := src.Set(viewOf(t, n, spec.ShuffleReservoir, padded(2, 1<<32)), nil)
	set.Ahead(always)
	require.False(t, set.asked(), "nor is it computed ahead")
	size, err := set.SizeBytes(context.Background(), 0, IDs)
	require.NoError(t, err)
	require.Equal(t, int64(idBytes)<<32, size, "the IDs' size needs no layout")
}

func TestUnwantedLayoutIsNotStarted(t *testing.T) {
	const n = 1000
	m := manyRecords(n)
	src := newSource(m, m.open)
	defer src.Close()
	src.turn <- struct{}{} // another layout is being computed
	set := src.Set(viewOf(t, n, spec.ShuffleReservoir, spec.Default().Deal), nil)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for range 2 {
		_, err := set.SizeBytes(gone, 0, Data)
		require.ErrorIs(t, err, context.Canceled)
	}
	src.work.Wait()
	require.False(t, set.asked())
	<-src.turn
	want, err := src.Set(set.View(), nil).SizeBytes(context.Background(), 0, Data)
	require.NoError(t, err)
	size, err := set.SizeBytes(context.Background(), 0, Data)
	require.NoError(t, err)
	require.Equal(t, want, size)
}

func TestStartedLayoutContinuesForNextCaller(t *testing.T) {
	const n = 1000
	slow := &waiting{memory: manyRecords(n), begun: make(chan struct{}), goOn: make(chan struct{})}
	src := newSource(slow, slow.memory.open)
	defer src.Close()
	set := src.Set(viewOf(t, n, spec.ShuffleNone, spec.Default().Deal), nil)
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan error, 1)
	go func() {
		_, err := set.SizeBytes(ctx, 0, Data)
		asked <- err
	}()
	<-slow.begun
	cancel()
	require.ErrorIs(t, <-asked, context.Canceled)
	require.True(t, set.asked())
	close(slow.goOn)
	_, err := set.SizeBytes(context.Background(), 0, Data)
	require.NoError(t, err)
	require.Equal(t, 1, slow.sweeps)
}

// waiting blocks when the first sizes are requested.
type waiting struct {
	*memory
	begun, goOn chan struct{}
	sweeps      int
}

func (w *waiting) Sizes(records []uint64, dst []int64) {
	if w.sweeps++; w.sweeps == 1 {
		close(w.begun)
	}
	<-w.goOn
	w.memory.Sizes(records, dst)
}

func TestLayoutsOfAllSetsShareABound(t *testing.T) {
	const n, workers = 2000, 1 << 14 // 512 KiB each
	m := manyRecords(n)
	src := newSource(m, m.open)
	defer src.Close()
	deal := spec.Default().Deal
	deal.Workers = workers
	view := viewOf(t, n, spec.ShuffleReservoir, deal)
	busy := src.Set(view, nil)
	want, err := busy.SizeBytes(context.Background(), 3, Data)
	require.NoError(t, err)
	var sets []*Set
	for range 40 {
		set := src.Set(view, nil)
		sets = append(sets, set)
		size, err := set.SizeBytes(context.Background(), 3, Data)
		require.NoError(t, err)
		require.Equal(t, want, size)
		src.work.Wait() // a layout is recorded after its callers got it
		_, err = busy.SizeBytes(context.Background(), 3, Data)
		require.NoError(t, err)
	}
	src.work.Wait()
	inMemory, bytes := 0, int64(0)
	for _, s := range append(sets, busy) {
		if s.asked() {
			inMemory++
			bytes += s.pending.layout.memoryBytes()
		}
	}
	require.LessOrEqual(t, bytes, int64(laidOutBytes))
	require.Equal(t, src.laidOut.bytes, bytes)
	require.Greater(t, inMemory, leastLaidOut)
	require.True(t, busy.asked(), "what is used again and again stays")
	require.False(t, sets[0].asked())
	size, err := sets[0].SizeBytes(context.Background(), 3, Data)
	require.NoError(t, err)
	require.Equal(t, want, size, "and what was dropped is computed again")
}

func TestUnusedSetsAreNotKept(t *testing.T) {
	const n, all = 2000, 2000
	m := manyRecords(n)
	src := newSource(m, m.open)
	defer src.Close()
	deal := spec.Default().Deal
	used := src.Set(viewOf(t, n, spec.ShuffleNone, deal), nil)
	_, err := used.SizeBytes(t.Context(), 0, Data)
	require.NoError(t, err)
	var sets []weak.Pointer[Set]
	for i := range all {
		set := src.Set(viewOf(t, n, spec.ShuffleNone, deal), nil)
		_, err := set.SizeBytes(t.Context(), 0, Data)
		require.NoError(t, err)
		src.work.Wait() // a layout is recorded after its callers got it
		sets = append(sets, weak.Make(set))
		if i%100 == 99 {
			runtime.GC()
		}
	}
	runtime.GC()
	inMemory := 0
	for _, s := range sets {
		if s.Value() != nil {
			inMemory++
		}
	}
	require.LessOrEqual(t, inMemory, 2, "of %d sets that nothing uses", all)
	require.LessOrEqual(t, len(src.laidOut.list), leastCleaned+200)
	require.True(t, used.asked(), "a set that is used keeps its layout")
}
