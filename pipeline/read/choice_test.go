package read

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// sizes is a catalog of equal records in equal shards, none of which exist.
type sizes struct {
	readtest.Index
	shards, records, recordBytes, members uint64 // per shard: records, members
	codec                                 format.Codec
	entered                               bool // the members begin with records
}

func (x *sizes) Records() uint64 { return x.shards * x.records }
func (x *sizes) Shards() int     { return int(x.shards) }

func (x *sizes) Shard(i int) catalog.Shard {
	s := catalog.Shard{
		Object: storage.Object{Path: fmt.Sprint(i), SizeBytes: int64(x.records * x.recordBytes)},
		First:  uint64(i) * x.records, Records: x.records, DecodedBytes: int64(x.records * x.recordBytes),
		Codec: x.codec, Members: x.members, EntryPoints: 1,
	}
	if x.entered {
		s.EntryPoints = x.members
	}
	return s
}

func (x *sizes) PieceStarts(chunkBytes, chunkRecords, _ uint64) []uint64 {
	each := max(min(chunkRecords, (chunkBytes+x.recordBytes-1)/x.recordBytes), 1)
	var starts []uint64
	for i := range x.shards {
		for r := uint64(0); r < x.records; r += each {
			starts = append(starts, i*x.records+r)
		}
	}
	return append(starts, x.Records())
}

func TestStrategyFollowsFromSizesIncludingTables(t *testing.T) {
	const mib = 1 << 20
	reservoir := spec.Default().Order
	full, none, single := reservoir, reservoir, reservoir
	full.Shuffle, none.Shuffle, single.ChunkRecords = spec.ShuffleFull, spec.ShuffleNone, 1
	gz := func(totalMiB, shards, recordBytes uint64) *sizes {
		return &sizes{shards: shards, records: totalMiB * mib / shards / recordBytes, recordBytes: recordBytes, members: 1, codec: gzip.Codec{}}
	}
	plain := func(totalMiB, shards, recordBytes uint64) *sizes {
		x := gz(totalMiB, shards, recordBytes)
		x.codec, x.members = nil, 0
		return x
	}
	entered := func(x *sizes, memberBytes uint64) *sizes {
		x.members, x.entered = max(x.records*x.recordBytes/memberBytes, 1), true
		return x
	}
	for name, c := range map[string]struct {
		sizes  *sizes
		order  spec.Order
		memory int64 // MiB
		want   spec.Read
	}{
		"12 bytes, less memory than records and their tables":      {gz(30, 8, 12), reservoir, 64, spec.ReadSpool},
		"12 bytes, memory for both":                                {gz(30, 8, 12), reservoir, 200, spec.ReadScan},
		"20 bytes, memory for what waits with its tables":          {gz(60, 8, 20), reservoir, 110, spec.ReadScan},
		"40 bytes, less memory than both":                          {gz(60, 8, 40), reservoir, 92, spec.ReadSpool},
		"30 bytes, memory for what waits with its tables":          {gz(60, 8, 30), reservoir, 100, spec.ReadScan},
		"12 bytes, a full shuffle":                                 {gz(30, 8, 12), full, 64, spec.ReadSpool},
		"12 bytes, front to back":                                  {gz(30, 8, 12), none, 64, spec.ReadScan},
		"a byte each, a piece each":                                {&sizes{shards: 2, records: 6053, recordBytes: 1, members: 1, codec: gzip.Codec{}}, single, 2, spec.ReadSpool},
		"a byte each, a piece each, memory for their tables":       {&sizes{shards: 2, records: 6053, recordBytes: 1, members: 1, codec: gzip.Codec{}}, single, 20, spec.ReadScan},
		"a kilobyte each, in half of the memory":                   {gz(60, 8, 1200), reservoir, 200, spec.ReadScan},
		"a kilobyte each, many shards, what waits fits":            {gz(2000, 100, 1200), reservoir, 512, spec.ReadScan},
		"a kilobyte each, few shards that every lane begins in":    {gz(2000, 4, 1200), reservoir, 512, spec.ReadSpool},
		"a kilobyte each, many shards, what waits does not fit":    {gz(2000, 100, 1200), reservoir, 64, spec.ReadSpool},
		"members of a piece each, what waits fits":                 {entered(gz(600, 8, 1200), 150_000), reservoir, 256, spec.ReadScan},
		"members of a piece each, of bytes, what waits fits":       {entered(gz(60, 8, 40), 5_120), reservoir, 64, spec.ReadScan},
		"members of a MiB, full shuffle of 16 bytes":               {entered(gz(60, 8, 16), mib), full, 32, spec.ReadSpool},
		"members of 64 KiB, full shuffle of 16 KiB":                {entered(gz(600, 8, 16<<10), 64<<10), full, 64, spec.ReadScan},
		"not compressed, records fit":                              {plain(60, 8, 1200), reservoir, 200, spec.ReadScan},
		"not compressed, 12 bytes, records fit and tables do not":  {plain(30, 8, 12), full, 64, spec.ReadGather},
		"not compressed, 12 bytes, both fit":                       {plain(30, 8, 12), full, 200, spec.ReadScan},
		"not compressed, a byte each, a piece each, tables do not": {&sizes{shards: 2, records: 6053, recordBytes: 1}, single, 2, spec.ReadGather},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := newFetcher(c.sizes, nothing{}, Options{
				MemoryBytes: c.memory * mib, ReadTimeout: time.Minute, PieceBytes: c.order.ChunkBytes, PieceRecords: c.order.ChunkRecords,
				Read: spec.ReadScan, Order: c.order,
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			got, err := f.Choose(spec.ReadAuto)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Strategy, got.Reason)
			forced, err := f.Choose(spec.ReadScan)
			require.NoError(t, err)
			require.Equal(t, spec.ReadScan, forced.Strategy)
			sizes := f.o.Survey.Sizes()
			_, sweeps := sizes.Lookahead(f.o.Choice)
			require.Equal(t, got.Strategy == spec.ReadSpool, sweeps, "what nobody would choose sweeps")
		})
	}
}

// A spool that holds a few shards is useless if an order returns to all of them.
func TestSpoolForPermutedChunksHoldsAllShards(t *testing.T) {
	const mib = 1 << 20
	o := spec.Default().Order
	x := &sizes{shards: 500, records: 2000, recordBytes: 12_000, members: 12, codec: gzip.Codec{}}
	f, err := newFetcher(x, nothing{}, Options{MemoryBytes: 64 * mib, ReadTimeout: time.Minute, PieceBytes: o.ChunkBytes, PieceRecords: o.ChunkRecords, Read: spec.ReadScan, Order: o})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	whole, err := f.Choose(spec.ReadSpool)
	require.NoError(t, err)
	x.entered = true
	all, err := f.Choose(spec.ReadSpool)
	require.NoError(t, err)
	require.Less(t, whole.SpoolBytes, all.SpoolBytes/2)
	require.Equal(t, int64(x.shards)*diskcache.RoomBytes(x.Shard(0).DecodedBytes), all.SpoolBytes)
	o.Shuffle = spec.ShuffleNone
	f.o.Survey.Settings.Order = o
	few, err := f.Choose(spec.ReadSpool)
	require.NoError(t, err)
	require.Less(t, few.SpoolBytes, all.SpoolBytes/2, "front to back it comes once")
}

// nothing is a storage that nothing is read from.
type nothing struct{ storage.Storage }

func (nothing) Caps() storage.Caps { return storage.Caps{} }
