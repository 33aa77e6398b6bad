package fetch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

func gatherConfig(budget int64) Config {
	return Config{MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: spec.ReadGather}
}

// newGathering makes a fetcher that gathers. At its end all that it used is
// given back.
func newGathering(t testing.TB, d *dataset, budget int64, s storage.Storage) *Fetcher {
	t.Helper()
	f, err := newFetcher(d.index, s, gatherConfig(budget))
	require.NoError(t, err)
	require.NotNil(t, f.gatherer, "%s", f.choice.reason)
	f.gatherer.pool.released = poison
	t.Cleanup(func() { closeGathering(t, f) })
	return f
}

func closeGathering(t testing.TB, f *Fetcher) {
	require.NoError(t, f.Close())
	require.Zero(t, f.gatherer.pool.mapped, "all memory is given back")
	require.Empty(t, f.gatherer.leaving)
	require.Zero(t, f.open.Load(), "all readers are closed")
}

// plainShapes are those that can be gathered.
func plainShapes() map[string]shape {
	plain := map[string]shape{}
	for name, s := range shapes {
		if s.codec == "" {
			plain[name] = s
		}
	}
	return plain
}

var gatherBudgets = []int64{1, 300 << 10, 4 << 20, 128 << 20}

func TestAllGatheredBytesAreRight(t *testing.T) {
	for name, s := range plainShapes() {
		d := makeDataset(t, s)
		orders := map[string]list{
			"none": inOrder(d.index), "reservoir": reservoirOrder(3, d.index, 3, 90), "full": randomOrder(4, d.index),
			"some twice": append(randomOrder(4, d.index), randomOrder(5, d.index)...),
		}
		for order, seq := range orders {
			for _, budget := range gatherBudgets {
				t.Run(fmt.Sprintf("%s/%s/budget=%d", name, order, budget), func(t *testing.T) {
					readEpochs(t, d, newGathering(t, d, budget, openStorage(t, d.dir)), seq, 3)
				})
			}
		}
	}
}

func TestGatheringReadersTogether(t *testing.T) {
	for name, s := range plainShapes() {
		d := makeDataset(t, s)
		g := reservoirOrder(3, d.index, 3, 90)
		for _, budget := range gatherBudgets {
			t.Run(fmt.Sprintf("%s/budget=%d", name, budget), func(t *testing.T) {
				f := newGathering(t, d, budget, openStorage(t, d.dir))
				stopped := f.Open(g)
				defer stopped.Close()
				var l Loan
				require.NoError(t, stopped.Lend(context.Background(), 0, 1, &l))
				defer l.Release()
				var wg sync.WaitGroup
				for w := range 4 {
					seq := g.deal(w, 4)
					r := f.Open(seq)
					wg.Go(func() { readAll(t, d, r, seq, 1+rand.IntN(40)); r.Close() })
				}
				wg.Wait()
				require.Equal(t, string(d.records[g[0]]), string(l.Records[0]), "a loan outlives all that others do")
			})
		}
	}
}

func TestEveryGatheringReadThatFailsSurfacesAndTheNextCallWorks(t *testing.T) {
	for _, budget := range []int64{1, 64 << 20} {
		d := makeDataset(t, shape{shards: 2, records: 60, maxBytes: 2000, checksummed: true})
		seq := reservoirOrder(1, d.index, 2, 20)
		told := 0
		for n := int64(0); ; n++ {
			store := openStorage(t, d.dir)
			nth, injected := faulty.Nth(n), atomic.Bool{}
			store.Before = func(r *storage.Read) error {
				err := nth(r)
				if err != nil {
					injected.Store(true)
				}
				return err
			}
			f := newGathering(t, d, budget, store)
			r := f.Open(seq)
			readWithErrors(t, context.Background, d, r, seq, func(k int, err error) {
				told++
				record, ok := errors.AsType[*RecordError](err)
				require.True(t, ok, "%v", err)
				require.ErrorIs(t, err, faulty.ErrInjected)
				x := d.index.extents[seq[k]]
				require.Equal(t, d.index.shards[x.Shard].Object.Path, record.Shard)
				require.Equal(t, x.Ordinal, record.Ordinal)
				require.Equal(t, x.OffsetBytes, record.OffsetBytes)
				require.Equal(t, x.SizeBytes, record.SizeBytes)
			})
			r.Close()
			if !injected.Load() {
				require.Zero(t, f.Stats().Errors)
				break
			}
			require.NotEmpty(t, f.Stats().LastErrors)
			closeGathering(t, f)
		}
		require.Positive(t, told)
	}
}
