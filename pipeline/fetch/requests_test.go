package fetch

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// servedOrder cuts records of up to 12 KB into chunks of about ten.
func servedOrder(shuffle spec.Shuffle) spec.Order {
	return spec.Order{Shuffle: shuffle, SizeRecords: 1600, Lanes: 8, Groups: 1, Batch: 1, ChunkBytes: 64 << 10, ChunkRecords: 128, Seed: 3}
}

// serviceConfig is for a bucket, with memory that holds what waits in the shuffle and
// hardly more.
func serviceConfig(t *testing.T, d *fetchtest.Dataset, o spec.Order) Config {
	c := Config{
		MemoryBytes: 16 << 20, ReadTimeout: time.Minute, PieceBytes: o.ChunkBytes, PieceRecords: o.ChunkRecords,
		Read: spec.ReadAuto, Order: o, Storage: profile.Defaults(profile.KindObject),
	}
	f, err := newFetcher(d.Index, fetchtest.OpenStorage(t, d.Dir), c)
	require.NoError(t, err)
	c.MemoryBytes = f.Needs().MemoryBytes
	require.NoError(t, f.Close())
	return c
}

// readTogether reads an epoch with some readers at a time, each its part.
func readTogether(t *testing.T, d *fetchtest.Dataset, f *Fetcher, g fetchtest.List, readers int) {
	var wg sync.WaitGroup
	for w := range readers {
		seq := g.Deal(w, readers)
		r := f.Open(seq)
		wg.Go(func() {
			if err := fetchtest.ReadEqual(d, r, seq, 16); err != nil {
				t.Error(err)
			}
			r.Close()
		})
	}
	wg.Wait()
}

// An epoch takes a request for each chunk, and no more bytes than its records have.
func TestAnEpochTakesARequestAChunk(t *testing.T) {
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
		for _, readers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/readers=%d", shuffle, readers), func(t *testing.T) {
				s := fetchtest.Serve(t, fetchtest.Make(t, fetchtest.Shape{Shards: 24, Records: 400, MaxBytes: 12_000}))
				o := servedOrder(shuffle)
				config := serviceConfig(t, s.Dataset, o)
				f := newFetcherWith(t, s.Dataset, config, s.Storage)
				require.Equal(t, spec.ReadScan, f.choice.Strategy, f.choice.Reason)
				readTogether(t, s.Dataset, f, fetchtest.Epoch(t, s.Index, o, 0), readers)
				requests, bytes := s.Asked()
				needs, st := f.Needs(), f.Stats()
				t.Logf("memory %d MiB, %d requests for %d chunks, %d bytes of %d; %d waits, %d dropped, %d reread", config.MemoryBytes>>20, requests, needs.Requests, bytes, needs.Bytes, st.Waits, st.PiecesDropped, st.PiecesReread)
				require.EqualValues(t, f.survey.Places.Table.Len(), needs.Requests)
				require.LessOrEqual(t, float64(requests), 1.02*float64(needs.Requests))
				require.LessOrEqual(t, float64(bytes), 1.03*float64(st.BytesOut))
			})
		}
	}
}
