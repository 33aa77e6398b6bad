package pipeline

import (
	"bytes"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// The data fetched for the first records of an epoch is enough to read them, for any shuffle and
// codec: they cause no further requests.
func TestFirstRecordsOfEpochAreReadFromPrefilledData(t *testing.T) {
	for name, shape := range map[string]synthetic.Shape{
		"tar":    {Format: "tar", RecordBytes: 5000},
		"tar.gz": {Format: "tar", Codec: "gz", RecordBytes: 5000},
	} {
		for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
			if testing.Short() && shuffle != spec.ShuffleReservoir {
				continue // only one goroutine reads: under the race detector, the order makes no difference
			}
			t.Run(name+"/"+string(shuffle), func(t *testing.T) {
				const epoch, records = 3, 40
				w := serveShards(t, shape, 500)
				s := cachedSpec(t, w)
				s.Order.Shuffle, s.Order.SizeRecords, s.Order.Lanes, s.Order.ChunkBytes = shuffle, 64, 2, 20_000
				s.Deal.Workers = 1
				cache := s.Cache
				s.Cache.Off = true // nothing is kept of the index pass
				require.NoError(t, openClosing(t, s).Close())
				s.Cache = cache
				d := open(t, s)
				require.ErrorContains(t, d.WarmRecords(t.Context(), epoch, 0, d.Records()+1, nil), "epoch 3 has 2000")
				var total int64
				require.NoError(t, d.WarmRecords(t.Context(), epoch, 0, records, func(_, all int64) { total = all }))
				if name == "tar" && shuffle != spec.ShuffleFull { // in a full shuffle each record is a chunk
					require.Less(t, total, int64(records*4*6000), "the chunks of these records, at most")
				}
				before := len(w.server.Log())
				set, err := d.Set(t.Context(), epoch, nil, s.Deal)
				require.NoError(t, err)
				numbers := make([]uint64, records)
				require.EqualValues(t, records, set.View().Records(0, 0, numbers))
				extents := make([]catalog.Extent, records)
				d.current.catalog.Extents(numbers, extents)
				for _, x := range extents {
					shard := d.current.catalog.Shard(x.Shard)
					if shard.Codec != nil {
						x.OffsetBytes, x.SizeBytes = 0, shard.Object.SizeBytes
					}
					require.NoError(t, storage.ReadAt(t.Context(), d.mount.cache, shard.Object, make([]byte, x.SizeBytes), x.OffsetBytes))
				}
				require.Equal(t, before, len(w.server.Log()))
			})
		}
	}
}

// The last line of a shard may lack its newline, but its record has one, even if the shard ends at
// a page boundary.
func TestShardWithoutFinalNewlineIsPrefilled(t *testing.T) {
	const records, page = 16, 4096
	server := faultserver.New()
	shard := bytes.Repeat(append(bytes.Repeat([]byte{'7'}, page-1), '\n'), records)
	shard[len(shard)-1] = '7'
	server.PutBytes("train/000.jsonl", shard)
	h := httptest.NewServer(server)
	defer h.Close()
	s := cachedSpec(t, served{url: h.URL + "/train/{000..000}.jsonl", server: server})
	d := open(t, s)
	require.EqualValues(t, records, d.Records())
	var done, total int64
	require.NoError(t, d.WarmRecords(t.Context(), 0, 0, records, func(n, all int64) { done, total = n, all }))
	require.EqualValues(t, len(shard), total)
	require.Equal(t, total, done)
}
