package fetch

import (
	"errors"
	stdmaps "maps" // the package has maps of its own
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// gatherConfig reads PieceBytes as other tests do, so that scans are alike.
func gatherConfig(budget int64) Config {
	return Config{MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: spec.ReadGather}
}

// Scan and gather give the same bytes, whatever the shards, the order, the
// memory, the storage, the number of readers and how these go about it.
func TestTheStrategyDoesNotShowInTheBytes(t *testing.T) {
	var sets []*fetchtest.Dataset
	var stores []storage.Storage
	for _, s := range []fetchtest.Shape{
		{Shards: 5, Records: 60, MaxBytes: 4000}, {Shards: 3, Records: 90, MaxBytes: 300, GapBytes: 30 << 10},
		{Shards: 7, Records: 200, MaxBytes: 30, NoNewline: true}, {Shards: 2, Records: 6, MaxBytes: 400 << 10, Checksummed: true},
	} {
		sets = append(sets, fetchtest.Make(t, s))
		stores = append(stores, fetchtest.OpenStorage(t, sets[len(sets)-1].Dir))
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(sets)-1).Draw(t, "dataset")
		d := sets[i]
		c := gatherConfig(rapid.SampledFrom([]int64{1, 64 << 10, 1 << 20, 5 << 20, 100 << 20}).Draw(t, "budget"))
		c.Read = rapid.SampledFrom([]spec.Read{spec.ReadScan, spec.ReadGather}).Draw(t, "read")
		profiles := fetchtest.ExtremeProfiles()
		c.Storage = profiles[rapid.SampledFrom(slices.Sorted(stdmaps.Keys(profiles))).Draw(t, "storage")]
		g := fetchtest.ReservoirOrder(rapid.Uint64().Draw(t, "seed"), d.Index, rapid.IntRange(1, 5).Draw(t, "lanes"), rapid.IntRange(1, len(d.Records)).Draw(t, "size"))
		workers, step := rapid.IntRange(1, 6).Draw(t, "workers"), rapid.IntRange(1, 300).Draw(t, "step")

		f, err := newFetcher(d.Index, stores[i], c)
		require.NoError(t, err)
		errs := make([]error, workers)
		var wg sync.WaitGroup
		for w := range workers {
			seq := g.Deal(w, workers)
			r := f.Open(seq)
			wg.Go(func() { errs[w] = fetchtest.ReadEqual(d, r, seq, step); r.Close() })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, f.Close())
		if f.gatherer != nil {
			require.Zero(t, f.gatherer.pool.Held())
		}
	})
}

// With room for it, each record is read once, in the reads that are forecast.
func TestAGatherReadsWhatIsForecast(t *testing.T) {
	for name, s := range map[string]fetchtest.Shape{
		"plain": {Shards: 6, Records: 250, MaxBytes: 12_000}, "gaps": {Shards: 2, Records: 1000, MaxBytes: 900, GapBytes: 12 << 10},
		"no newline": {Shards: 6, Records: 300, MaxBytes: 40, NoNewline: true}, "large": {Shards: 2, Records: 8, MaxBytes: 2 << 20},
	} {
		s.Read = spec.ReadGather
		d := fetchtest.Make(t, s)
		for order, seq := range map[string]fetchtest.List{"none": fetchtest.InOrder(d.Index), "reservoir": fetchtest.ReservoirOrder(3, d.Index, 3, 90), "full": fetchtest.RandomOrder(4, d.Index)} {
			t.Run(name+"/"+order, func(t *testing.T) {
				store := &fetchtest.CountedStorage{Storage: fetchtest.OpenStorage(t, d.Dir)}
				f := newFetcherOver(t, d, 256<<20, store)
				reads, bytes := int64(0), int64(0)
				c, err := f.ForecastGather(t.Context(), seq, seq.Len(), func(n int64) {
					require.Positive(t, n)
					reads++
					bytes += n
				})
				require.NoError(t, err)
				require.Equal(t, bytes, c.ReadBytes)
				require.Zero(t, store.Reads.Load(), "a forecast reads nothing")
				r := f.Open(seq)
				defer r.Close()
				fetchtest.ReadAll(t, d, r, seq, askedRecords)
				require.Equal(t, [2]int64{reads, bytes}, [2]int64{store.Reads.Load(), store.Bytes.Load()})
				total := int64(0)
				for _, b := range d.Records {
					total += int64(len(b))
				}
				if s.NoNewline {
					total -= int64(s.Shards)
				}
				require.Equal(t, total, bytes-c.GapBytes, "each byte is read once")
			})
		}
	}
}
