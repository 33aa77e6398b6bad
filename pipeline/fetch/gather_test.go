package fetch

import (
	"context"
	"errors"
	"fmt"
	stdmaps "maps" // the package has maps of its own
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// gatherConfig reads PieceBytes as other tests do, so that scans are alike.
func gatherConfig(budget int64) Config {
	return Config{MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: spec.ReadGather}
}

// readEqual is readAll where a test may not be ended.
func readEqual(d *dataset, r *Reader, seq list, n int) error {
	var l Loan
	for k := 0; k < len(seq); {
		if err := r.Lend(context.Background(), uint64(k), min(n, len(seq)-k), &l); err != nil {
			return err
		}
		for i, b := range l.Records {
			if string(d.records[seq[k+i]]) != string(b) {
				return fmt.Errorf("record %d of the sequence, number %d, is wrong", k+i, seq[k+i])
			}
		}
		k += len(l.Records)
		l.Release()
	}
	return nil
}

// Scan and gather give the same bytes, whatever the shards, the order, the
// memory, the storage, the number of readers and how these go about it.
func TestTheStrategyDoesNotShowInTheBytes(t *testing.T) {
	var sets []*dataset
	var stores []storage.Storage
	for _, s := range []shape{
		{shards: 5, records: 60, maxBytes: 4000}, {shards: 3, records: 90, maxBytes: 300, gapBytes: 30 << 10},
		{shards: 7, records: 200, maxBytes: 30, noNewline: true}, {shards: 2, records: 6, maxBytes: 400 << 10, checksummed: true},
	} {
		sets = append(sets, makeDataset(t, s))
		stores = append(stores, openStorage(t, sets[len(sets)-1].dir))
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(sets)-1).Draw(t, "dataset")
		d := sets[i]
		c := gatherConfig(rapid.SampledFrom([]int64{1, 64 << 10, 1 << 20, 5 << 20, 100 << 20}).Draw(t, "budget"))
		c.Read = rapid.SampledFrom([]spec.Read{spec.ReadScan, spec.ReadGather}).Draw(t, "read")
		profiles := extremeProfiles()
		c.Storage = profiles[rapid.SampledFrom(slices.Sorted(stdmaps.Keys(profiles))).Draw(t, "storage")]
		g := reservoirOrder(rapid.Uint64().Draw(t, "seed"), d.index, rapid.IntRange(1, 5).Draw(t, "lanes"), rapid.IntRange(1, len(d.records)).Draw(t, "size"))
		workers, step := rapid.IntRange(1, 6).Draw(t, "workers"), rapid.IntRange(1, 300).Draw(t, "step")

		f, err := newFetcher(d.index, stores[i], c)
		require.NoError(t, err)
		errs := make([]error, workers)
		var wg sync.WaitGroup
		for w := range workers {
			seq := g.deal(w, workers)
			r := f.Open(seq)
			wg.Go(func() { errs[w] = readEqual(d, r, seq, step); r.Close() })
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
	for name, s := range map[string]shape{
		"plain": {shards: 6, records: 250, maxBytes: 12_000}, "gaps": {shards: 2, records: 1000, maxBytes: 900, gapBytes: 12 << 10},
		"no newline": {shards: 6, records: 300, maxBytes: 40, noNewline: true}, "large": {shards: 2, records: 8, maxBytes: 2 << 20},
	} {
		s.read = spec.ReadGather
		d := makeDataset(t, s)
		for order, seq := range map[string]list{"none": inOrder(d.index), "reservoir": reservoirOrder(3, d.index, 3, 90), "full": randomOrder(4, d.index)} {
			t.Run(name+"/"+order, func(t *testing.T) {
				store := &countedStorage{Storage: openStorage(t, d.dir)}
				f := newFetcherOver(t, d, 256<<20, store)
				reads, bytes := int64(0), int64(0)
				c, err := f.ForecastGather(t.Context(), seq, seq.Len(), func(n int64) {
					require.Positive(t, n)
					reads++
					bytes += n
				})
				require.NoError(t, err)
				require.Equal(t, bytes, c.ReadBytes)
				require.Zero(t, store.reads.Load(), "a forecast reads nothing")
				r := f.Open(seq)
				defer r.Close()
				readAll(t, d, r, seq, askedRecords)
				require.Equal(t, [2]int64{reads, bytes}, [2]int64{store.reads.Load(), store.bytes.Load()})
				total := int64(0)
				for _, b := range d.records {
					total += int64(len(b))
				}
				if s.noNewline {
					total -= int64(s.shards)
				}
				require.Equal(t, total, bytes-c.GapBytes, "each byte is read once")
			})
		}
	}
}
