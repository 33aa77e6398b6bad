package readtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
)

// MakeOverlapping makes compressed shards of records of recordBytes that begin every strideBytes,
// like overlapping training sequences.
func MakeOverlapping(t testing.TB, shards, records, recordBytes, strideBytes, memberBytes int) *Dataset {
	t.Helper()
	d := &Dataset{Dir: t.TempDir(), Index: &Index{}}
	for i := range shards {
		decoded := make([]byte, (records-1)*strideBytes+recordBytes)
		for j := range decoded {
			decoded[j] = byte(j*31 + j>>8*7 + i)
		}
		var raw bytes.Buffer
		entries := []format.Entry{}
		for at := 0; at < len(decoded); at += memberBytes {
			entries = append(entries, format.Entry{DecodedBytes: int64(at), RawBytes: int64(raw.Len())})
			raw.Write(formattest.Gzip(decoded[at:min(at+memberBytes, len(decoded))]))
		}
		name := fmt.Sprintf("shard-%03d", i)
		require.NoError(t, os.WriteFile(filepath.Join(d.Dir, name), raw.Bytes(), 0o644))
		d.Index.ShardTable = append(d.Index.ShardTable, catalog.Shard{
			First: d.Index.Records(), Records: uint64(records), DecodedBytes: int64(len(decoded)),
			Codec: gzip.Codec{}, EntryPoints: uint64(len(entries)), Members: uint64(len(entries)), Object: Listed(t, d.Dir, name),
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
