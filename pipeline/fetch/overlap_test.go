package fetch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/gzip"
	"github.com/lsiofs/lsiofs/pipeline/unpack/unpacktest"
)

// makeOverlapping makes compressed shards of records of recordBytes that begin
// every strideBytes, as overlapping training sequences do.
func makeOverlapping(t testing.TB, shards, records, recordBytes, strideBytes, memberBytes int) *fetchtest.Dataset {
	t.Helper()
	d := &fetchtest.Dataset{Dir: t.TempDir(), Index: &fetchtest.Index{}}
	for i := range shards {
		decoded := make([]byte, (records-1)*strideBytes+recordBytes)
		for j := range decoded {
			decoded[j] = byte(j*31 + j>>8*7 + i)
		}
		var raw bytes.Buffer
		entries := []unpack.Entry{}
		for at := 0; at < len(decoded); at += memberBytes {
			entries = append(entries, unpack.Entry{DecodedBytes: int64(at), RawBytes: int64(raw.Len())})
			raw.Write(unpacktest.Gzip(decoded[at:min(at+memberBytes, len(decoded))]))
		}
		name := fmt.Sprintf("shard-%03d", i)
		require.NoError(t, os.WriteFile(filepath.Join(d.Dir, name), raw.Bytes(), 0o644))
		d.Index.ShardTable = append(d.Index.ShardTable, catalog.Shard{
			First: d.Index.Records(), Records: uint64(records), DecodedBytes: int64(len(decoded)),
			Codec: gzip.Codec{}, EntryPoints: uint64(len(entries)), Members: uint64(len(entries)), Object: fetchtest.Listed(t, d.Dir, name),
		})
		d.Index.EntryTable = append(d.Index.EntryTable, entries)
		for r := range records {
			off := r * strideBytes
			d.Records = append(d.Records, decoded[off:off+recordBytes])
			d.Index.ExtentTable = append(d.Index.ExtentTable, catalog.Extent{
				Shard: i, Ordinal: uint64(r), OffsetBytes: int64(off), SizeBytes: int64(recordBytes),
			})
		}
	}
	return d
}

func TestRecordsOfCompressedShardsMayOverlap(t *testing.T) {
	for _, c := range []struct{ record, stride, member int }{
		{96, 64, 1 << 30}, {96, 64, 1000}, {5000, 10, 1 << 30}, {5000, 10, 3000}, {20_000, 1, 1 << 30}, {64, 96, 500},
	} {
		t.Run(fmt.Sprintf("record=%d/stride=%d/member=%d", c.record, c.stride, c.member), func(t *testing.T) {
			d := makeOverlapping(t, 3, 300, c.record, c.stride, c.member)
			for _, budget := range []int64{1, 1 << 20, 1 << 30} {
				for _, seq := range []fetchtest.List{fetchtest.InOrder(d.Index), fetchtest.RandomOrder(1, d.Index)[:200], fetchtest.ReservoirOrder(2, d.Index, 3, 60)} {
					f := newTestFetcher(t, d, budget)
					r := f.Open(seq)
					fetchtest.ReadAll(t, d, r, seq, 17)
					r.Close()
				}
			}
		})
	}
}

func TestOverlappingRecordsInOrderAreDecodedOnce(t *testing.T) {
	d := makeOverlapping(t, 3, 2000, 96, 64, 1<<30)
	f := newTestFetcher(t, d, 1<<30)
	seq := fetchtest.InOrder(d.Index)
	r := f.Open(seq)
	fetchtest.ReadAll(t, d, r, seq, 50)
	r.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for shard, passed := range f.decoders.passed {
		require.Zero(t, passed, "shard %d was passed over again", shard)
	}
}
