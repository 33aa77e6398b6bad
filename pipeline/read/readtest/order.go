package readtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// List is a sequence given by a slice.
type List []uint64

func (l List) Len() uint64 { return uint64(len(l)) }
func (l List) Records(k uint64, dst []uint64) int {
	if k >= uint64(len(l)) {
		return 0
	}
	return copy(dst, l[k:])
}

// ReservoirOrder returns a sequence of all records as in pipeline/order/ORDER.md: lanes, each with
// a buffer of its own, alternating.
func ReservoirOrder(seed uint64, x *Index, lanes, size int) List {
	rng := rand.New(rand.NewPCG(seed, 0))
	n := len(x.ExtentTable)
	var out List
	order := rng.Perm(len(x.ShardTable))
	var s []uint64
	for _, i := range order {
		for r := range x.ShardTable[i].Records {
			s = append(s, x.ShardTable[i].First+r)
		}
	}
	ls := make([]List, lanes)
	for l := range ls {
		lane := s[n*l/lanes : n*(l+1)/lanes]
		var slots []uint64
		for len(lane) > 0 || len(slots) > 0 {
			for len(slots) < max(1, size/lanes) && len(lane) > 0 {
				slots, lane = append(slots, lane[0]), lane[1:]
			}
			j := rng.IntN(len(slots))
			ls[l] = append(ls[l], slots[j])
			slots[j] = slots[len(slots)-1]
			slots = slots[:len(slots)-1]
		}
	}
	for i := 0; len(out) < n; i++ {
		for _, l := range ls {
			if i < len(l) {
				out = append(out, l[i])
			}
		}
	}
	return out
}

// RandomOrder returns all records in random order.
func RandomOrder(seed uint64, x *Index) List {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make(List, len(x.ExtentTable))
	for i, r := range rng.Perm(len(out)) {
		out[i] = uint64(r)
	}
	return out
}

// InOrder returns all records in the order in which they are stored.
func InOrder(x *Index) List {
	out := make(List, len(x.ExtentTable))
	for i := range out {
		out[i] = uint64(i)
	}
	return out
}

// Deal returns the records of worker w of n.
func (l List) Deal(w, n int) List {
	var out List
	for i := w; i < len(l); i += n {
		out = append(out, l[i])
	}
	return out
}

// Epoch returns the order of an epoch of a dataset's chunks, as in a mount.
func Epoch(t testing.TB, x *Index, o spec.Order, epoch uint64) List {
	t.Helper()
	e, err := order.NewEpoch(o, epoch, x.PieceStarts(o.ChunkBytes, o.ChunkRecords, 0), nil)
	require.NoError(t, err)
	out := make(List, x.Records())
	c := e.Cursor(0)
	for n := 0; n < len(out); {
		m := c.Next(out[n:])
		require.NotZero(t, m)
		n += m
	}
	return out
}

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
