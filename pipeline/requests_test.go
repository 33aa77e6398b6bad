package pipeline

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// asked counts the requests for bytes that the server has received after the first n, and their
// bytes.
func (w served) asked(n int) (requests int, bytes int64) {
	for _, r := range w.server.Log()[n:] {
		if r.Method != "GET" {
			continue
		}
		requests++
		if r.Begin >= 0 {
			bytes += r.End - r.Begin
		}
	}
	return requests, bytes
}

// An epoch of uncompressed shards at a server takes one request per chunk in every shuffle (without
// a shuffle, one request for as much as the memory allows), for one reader and for several, and
// gives the same bytes as from a disk. A plan forecasts this. Hedges are off, because their number
// depends on how busy the machine is.
func TestRemoteEpochTakesOneRequestPerChunk(t *testing.T) {
	const shards, records = servedShards, 150
	for name, shape := range map[string]synthetic.Shape{
		"tar":   {Format: "tar", RecordBytes: 4096},
		"jsonl": {Format: "jsonl"},
	} {
		w := serveShards(t, shape, records)
		for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
			for _, readers := range []uint64{1, 4} {
				t.Run(fmt.Sprintf("%s/%s/readers=%d", name, shuffle, readers), func(t *testing.T) {
					s := testSpec(t, w.dir)
					s.Order.Shuffle, s.Order.ChunkBytes, s.Order.SizeRecords, s.Order.Lanes = shuffle, 20_000, 64, 4
					s.Deal.Workers, s.Read = readers, spec.ReadAuto
					want := readTogether(t, open(t, s), s)

					s.Dataset, s.IndexDir, s.MemoryBytes, s.Lookahead = w.url, t.TempDir(), 24<<20, int64(readers-1)*100_000
					s.Remote.Hedge = spec.HedgeOff
					d := open(t, s)
					set, err := d.Set(t.Context(), 0, nil, s.Deal)
					require.NoError(t, err)
					f, err := d.Forecast(t.Context(), set.View(), 0, 1<<40)
					require.NoError(t, err)
					plan := f.Storages[0]
					require.Equal(t, spec.ReadScan, plan.Strategy, plan.Reason)
					require.Empty(t, plan.Warning)

					before := len(w.server.Log())
					require.Equal(t, want, readTogether(t, d, s))
					requests, bytes := w.asked(before)
					chunks, total := plan.Epoch.Requests, int64(0)
					for _, b := range want {
						total += int64(len(b))
					}
					if shuffle == spec.ShuffleNone {
						// Front to back, a request covers what the memory has room for, not a
						// chunk.
						require.Less(t, chunks, int64(20))
					} else {
						require.Greater(t, chunks, int64(60))
					}
					require.LessOrEqual(t, float64(requests), 1.02*float64(chunks))
					require.LessOrEqual(t, float64(bytes), 1.03*float64(total))
					require.InEpsilon(t, float64(total), float64(plan.Epoch.Bytes), 0.05)
					require.EqualValues(t, shards*records, plan.Epoch.Records)
				})
			}
		}
	}
}

// readTogether reads all workers' streams of epoch 0 at the same time.
func readTogether(t *testing.T, d *Dataset, s spec.Spec) [][]byte {
	set, err := d.Set(t.Context(), 0, nil, s.Deal)
	require.NoError(t, err)
	all := make([][]byte, s.Deal.Workers)
	errs := make([]error, s.Deal.Workers)
	var readers sync.WaitGroup
	for i := range all {
		readers.Go(func() {
			h := set.Open(uint64(i), stream.Data)
			defer h.Close()
			var r stream.Reply
			for {
				if errs[i] = h.ReadAt(t.Context(), &r, int64(len(all[i])), 30_000); errs[i] != nil || r.Len() == 0 {
					return
				}
				all[i] = append(all[i], slices.Concat(r.Slices...)...)
				r.Release()
			}
		})
	}
	readers.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return all
}
