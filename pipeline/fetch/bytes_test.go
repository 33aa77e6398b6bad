package fetch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// poison overwrites memory that is given back, so that a use after that shows.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xDB
	}
}

func newTestFetcher(t testing.TB, d *dataset, budget int64) *Fetcher {
	t.Helper()
	return newFetcherOver(t, d, budget, openStorage(t, d.dir))
}

func newFetcherOver(t testing.TB, d *dataset, budget int64, s storage.Storage) *Fetcher {
	t.Helper()
	f, err := newFetcher(d.index, s, Config{MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: d.read})
	require.NoError(t, err)
	f.cache.released = poison
	if d.read == spec.ReadGather {
		require.NotNil(t, f.gatherer)
		f.gatherer.pool.Released = poison
	}
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		if f.gatherer != nil {
			require.Zero(t, f.gatherer.pool.Held(), "all memory is given back")
			require.Empty(t, f.gatherer.leaving)
		}
		require.Zero(t, f.cache.mapped, "all memory is given back")
		require.Zero(t, f.decoders.held)
		require.Empty(t, f.loads)
		require.Zero(t, f.aheadOut)
	})
	return f
}

// readAll reads a sequence to its end, n records at a time, and compares.
func readAll(t testing.TB, d *dataset, r *Reader, seq list, n int) {
	var l Loan
	for k := 0; k < len(seq); {
		require.NoError(t, r.Lend(context.Background(), uint64(k), min(n, len(seq)-k), &l))
		require.NotEmpty(t, l.Records)
		require.LessOrEqual(t, len(l.Records), n)
		for i, b := range l.Records {
			if want := d.records[seq[k+i]]; string(want) != string(b) {
				require.Equal(t, string(want), string(b), "record %d of the sequence, number %d", k+i, seq[k+i])
			}
		}
		k += len(l.Records)
		l.Release()
	}
}

var shapes = map[string]shape{
	"plain":                      {shards: 6, records: 200, maxBytes: 3000},
	"plain with gaps":            {shards: 2, records: 12, maxBytes: 3000, gapBytes: 3 << 20},
	"small records, no newline":  {shards: 6, records: 300, maxBytes: 40, noNewline: true},
	"one record a shard":         {shards: 9, records: 1, maxBytes: 100},
	"checksummed":                {shards: 4, records: 200, maxBytes: 2000, checksummed: true},
	"records beyond a segment":   {shards: 3, records: 8, maxBytes: 200 << 10},
	"gz, one member":             {codec: "gz", shards: 3, records: 110, maxBytes: 900},
	"gz, many members":           {codec: "gz", shards: 3, records: 110, maxBytes: 900, member: 20, noNewline: true},
	"gz with gaps":               {codec: "gz", shards: 3, records: 110, maxBytes: 900, member: 33, gapBytes: 5000},
	"gz, cut anywhere":           {codec: "gz", shards: 3, records: 110, maxBytes: 900, memberBytes: 5000, gapBytes: 300},
	"zst, cut anywhere, sums":    {codec: "zst", shards: 3, records: 110, maxBytes: 900, memberBytes: 100, checksummed: true},
	"lz4, cut anywhere":          {codec: "lz4", shards: 3, records: 110, maxBytes: 900, memberBytes: 1000, noNewline: true},
	"zst, one frame":             {codec: "zst", shards: 3, records: 110, maxBytes: 900, noNewline: true},
	"zst, many frames, checksum": {codec: "zst", shards: 3, records: 110, maxBytes: 900, member: 40, checksummed: true},
	"gathered":                   {read: spec.ReadGather, shards: 6, records: 200, maxBytes: 3000},
	"gathered with gaps":         {read: spec.ReadGather, shards: 2, records: 40, maxBytes: 3000, gapBytes: 20 << 10},
	"gathered, tiny, no newline": {read: spec.ReadGather, shards: 6, records: 300, maxBytes: 40, noNewline: true},
	"gathered, checksummed":      {read: spec.ReadGather, shards: 4, records: 200, maxBytes: 2000, checksummed: true},
	"gathered, beyond a block":   {read: spec.ReadGather, shards: 3, records: 8, maxBytes: 200 << 10},
}

func TestAllBytesAreRight(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			d := makeDataset(t, s)
			orders := map[string]list{
				"none": inOrder(d.index), "reservoir": reservoirOrder(3, d.index, 3, 90), "full": randomOrder(4, d.index),
			}
			for order, seq := range orders {
				for _, budget := range []int64{1, 300 << 10, 64 << 20} {
					if order == "full" && budget < 1<<20 && s.codec != "" && s.member == 0 {
						seq = seq[:30] // every record decodes a shard
					}
					t.Run(fmt.Sprintf("%s/budget=%d", order, budget), func(t *testing.T) {
						f := newTestFetcher(t, d, budget)
						readEpochs(t, d, f, seq, 2)
					})
				}
			}
		})
	}
}

// readEpochs reads a sequence some times, by different steps.
func readEpochs(t testing.TB, d *dataset, f *Fetcher, seq list, epochs int) {
	for epoch := range epochs {
		r := f.Open(seq)
		readAll(t, d, r, seq, 1+epoch*49)
		r.Close()
	}
}

func TestReadersTogether(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			d := makeDataset(t, s)
			g := reservoirOrder(3, d.index, 3, 90)
			for _, budget := range []int64{1, 300 << 10, 64 << 20} {
				t.Run(fmt.Sprintf("budget=%d", budget), func(t *testing.T) {
					f := newTestFetcher(t, d, budget)
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
					require.Equal(t, string(d.records[g[0]]), string(l.Records[0]), "a loan outlives all eviction")
				})
			}
		})
	}
}
