package pipeline

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// A cache that holds half of a dataset saves half of the requests of the second epoch: reading
// ahead takes next to none of its room, and what does not fit is requested once.
func TestCacheOfHalfDatasetSavesHalfOfRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads, and the race detector changes no count of requests")
	}
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 12_500}, 2000)
	total := int64(0)
	for _, name := range w.names {
		info, err := os.Stat(filepath.Join(w.dir, name))
		require.NoError(t, err)
		total += info.Size()
	}
	s := cachedSpec(t, w)
	s.Read, s.Deal.Workers, s.MemoryBytes = spec.ReadAuto, 1, 24<<20
	s.Order.ChunkBytes, s.Order.ChunkRecords, s.Order.SizeRecords, s.Order.Lanes = 128<<10, 1<<20, 64, 4
	s.Cache.SizeBytes = total / 2
	size := s.Cache
	s.Cache.Off = true // nothing is kept of the index pass
	require.NoError(t, openClosing(t, s).Close())
	s.Cache = size
	d := open(t, s)
	chunks := float64(d.Chunks())
	for epoch, most := range []float64{1.02, 0.54} {
		set, err := d.Set(t.Context(), uint64(epoch), nil, s.Deal)
		require.NoError(t, err)
		before := len(w.server.Log())
		readAsTheDiskTakes(t, d, set)
		requests, _ := w.asked(before)
		t.Logf("epoch %d: %d requests for %.0f chunks: %.3f", epoch, requests, chunks, float64(requests)/chunks)
		require.LessOrEqual(t, float64(requests), most*chunks)
	}
	require.EqualValues(t, spec.ReadScan, d.Status().Fetch.Strategy)
}

// readAsTheDiskTakes reads worker 0's epoch, and after each part waits for the disk of the cache,
// because what comes faster than the disk can write is not cached.
func readAsTheDiskTakes(t *testing.T, d *Dataset, set *stream.Set) {
	h := set.Open(0, stream.Data)
	defer h.Close()
	var r stream.Reply
	for off := int64(0); ; {
		require.NoError(t, h.ReadAt(t.Context(), &r, off, 1<<20))
		n := r.Len()
		r.Release()
		if n == 0 {
			return
		}
		off += int64(n)
		require.Eventually(t, func() bool { return d.Status().Cache.Unwritten == 0 }, time.Minute, time.Millisecond)
	}
}
