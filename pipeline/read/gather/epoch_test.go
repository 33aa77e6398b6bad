package gather

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

// inEpoch is a sequence of an epoch.
type inEpoch struct {
	chunkmap.Sequence
	epoch uint64
}

func (s inEpoch) Epoch() uint64 { return s.epoch }

// Each read has the epoch of its sequence, also if readers of several epochs alternate, and if a
// failed read is repeated.
func TestReadsCarryEpochOfTheirSequence(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 200, MaxBytes: 2000})
	store := readtest.OpenStorage(t, d.Dir)
	var reads, failed, wrong atomic.Int64
	shard := func(i int) string { return d.Index.Shard(i).Object.Path }
	store.Before = func(r *storage.Read) error {
		if r.Epoch != 7 && strings.Contains(r.Object.Path, shard(0)) || r.Epoch != 8 && strings.Contains(r.Object.Path, shard(1)) {
			wrong.Add(1)
		}
		if reads.Add(1)%3 == 0 {
			failed.Add(1)
			return faulty.ErrInjected
		}
		return nil
	}
	g := newGathererOver(t, d, 8<<20, store)
	of := map[int]readtest.List{}
	for _, k := range readtest.InOrder(d.Index) {
		i := d.Index.ExtentTable[k].Shard
		of[i] = append(of[i], k)
	}
	var readers [2]*Reader
	for i := range readers {
		readers[i] = g.Open(inEpoch{of[i], uint64(7 + i)})
		defer readers[i].Close()
	}
	var at [2]int
	for at[0] < len(of[0]) || at[1] < len(of[1]) {
		for i, r := range readers {
			if at[i] == len(of[i]) {
				continue
			}
			var l budget.Records
			if err := r.Read(context.Background(), uint64(at[i]), 3, &l); err != nil {
				require.ErrorIs(t, err, faulty.ErrInjected)
				continue
			}
			for j, b := range l.Records {
				require.Equal(t, string(d.Records[of[i][at[i]+j]]), string(b))
			}
			at[i] += len(l.Records)
			l.Release()
		}
	}
	require.Positive(t, failed.Load())
	require.Zero(t, wrong.Load(), "of %d reads", reads.Load())
}
