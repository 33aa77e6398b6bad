package read

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// gatherConfig has the PieceBytes of other tests, so that scans are alike.
func gatherConfig(budget int64) Options {
	return Options{MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: spec.ReadGather}
}

// Scan and gather return the same bytes, for any shards, order, memory, storage, number of readers,
// and way of reading.
func TestTheStrategyDoesNotShowInTheBytes(t *testing.T) {
	var sets []*readtest.Dataset
	var stores []storage.Storage
	for _, s := range []readtest.Shape{
		{Shards: 5, Records: 60, MaxBytes: 4000}, {Shards: 3, Records: 90, MaxBytes: 300, GapBytes: 30 << 10},
		{Shards: 7, Records: 200, MaxBytes: 30, NoNewline: true}, {Shards: 2, Records: 6, MaxBytes: 400 << 10, Checksummed: true},
	} {
		sets = append(sets, readtest.Make(t, s))
		stores = append(stores, readtest.OpenStorage(t, sets[len(sets)-1].Dir))
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(sets)-1).Draw(t, "dataset")
		d := sets[i]
		c := gatherConfig(rapid.SampledFrom([]int64{1, 64 << 10, 1 << 20, 5 << 20, 100 << 20}).Draw(t, "budget"))
		c.Read = rapid.SampledFrom([]spec.Read{spec.ReadScan, spec.ReadGather}).Draw(t, "read")
		profiles := readtest.ExtremeProfiles()
		c.Profile = profiles[rapid.SampledFrom(slices.Sorted(maps.Keys(profiles))).Draw(t, "storage")]
		g := readtest.ReservoirOrder(rapid.Uint64().Draw(t, "seed"), d.Index, rapid.IntRange(1, 5).Draw(t, "lanes"), rapid.IntRange(1, len(d.Records)).Draw(t, "size"))
		workers, step := rapid.IntRange(1, 6).Draw(t, "workers"), rapid.IntRange(1, 300).Draw(t, "step")

		f, err := newFetcher(d.Index, stores[i], c)
		require.NoError(t, err)
		errs := make([]error, workers)
		var wg sync.WaitGroup
		for w := range workers {
			seq := g.Deal(w, workers)
			r := f.Open(seq)
			wg.Go(func() { errs[w] = readtest.ReadEqual(d, r, seq, step); r.Close() })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, f.Close())
		if f.gatherer != nil {
			require.Zero(t, f.gatherer.Stats().HeldBytes)
		}
	})
}

// A gatherer's counts are in the fetcher's statistics, once.
func TestStatsOfGatheringReader(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Read: spec.ReadGather, Shards: 3, Records: 200, MaxBytes: 3000})
	held := readtest.OpenStorage(t, d.Dir)
	store := &readtest.CountedStorage{Storage: held}
	f := newFetcherOver(t, d, 8<<20, store)
	seq := readtest.RandomOrder(1, d.Index)
	r := f.Open(seq)
	defer r.Close()
	held.Hold()
	readtest.Ask(t, r, 0, 10) // nothing can have arrived: it waits
	held.Release()
	readtest.ReadAll(t, d, r, seq, 10)
	total := 0
	for _, b := range d.Records {
		total += len(b)
	}
	s := f.Stats()
	require.Equal(t, "gather", s.Strategy)
	require.EqualValues(t, len(seq), s.RecordsOut)
	require.EqualValues(t, total, s.BytesOut)
	require.LessOrEqual(t, s.Hits, s.RecordsOut)
	require.Positive(t, s.Waits)
	require.Positive(t, s.WaitNanos)
	require.EqualValues(t, store.Bytes.Load(), s.BytesRead)
	require.EqualValues(t, store.Reads.Load(), s.Gather.Reads)
	require.Zero(t, s.Gather.ReadsInFlight)
	require.Positive(t, s.HeldBytes)
	require.LessOrEqual(t, s.HeldBytes, int64(8<<20))
}
