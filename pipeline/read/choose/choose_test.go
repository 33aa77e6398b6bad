package choose

import (
	"strings"
	"testing"

	"github.com/dustin/go-humanize"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// sizesOf returns the sizes of that many equal shards of 1000 records of 1000 bytes each, in pieces
// of 100 records.
func sizesOf(shards int, memory int64, compressed bool, members uint64, o spec.Order) Sizes {
	const records, recordBytes, pieceRecords, tableBytes = 1000, 1000, 100, 4000
	s := Sizes{Settings: Settings{
		MemoryBytes: memory, PieceBytes: pieceRecords * recordBytes, PieceRecords: pieceRecords, Decoders: 64,
		Order: o, Storage: storage.Profile{}.Or(),
	}, Compressed: compressed}
	s.Limits = NewLimits(memory, 0, 0, s.Storage)
	s.Held = Held{
		Shards: shards, Bytes: int64(shards * records * recordBytes), Records: uint64(shards * records),
		Pieces: shards * records / pieceRecords, TableBytes: int64(shards * records / pieceRecords * tableBytes),
	}
	x := Shard{DecodedBytes: records * recordBytes, Records: records, Wanted: records, EntryPoints: 1}
	if compressed {
		s.Held.Packed, s.Held.DecoderBytes = shards, DecoderBytesOf("gzip", x.DecodedBytes, members)
		x.Compressed, x.Members, x.EntryPoints = true, members, members
	}
	for range shards {
		s.Shards = append(s.Shards, x)
	}
	return s
}

func TestChoiceDependsOnSizesOnly(t *testing.T) {
	const mib = 1 << 20
	full := spec.Order{Shuffle: spec.ShuffleFull, Lanes: 1}
	none := spec.Order{Shuffle: spec.ShuffleNone, Lanes: 1}
	reservoir := spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 4, SizeRecords: 2000}
	windows := sizesOf(200, 64*mib, true, 1, reservoir)
	windows.Held.DecoderBytes = 9 * mib // of which 4 are open at a time
	for name, c := range map[string]struct {
		sizes Sizes
		want  spec.Read
		says  string
	}{
		"compressed, large windows":           {windows, spec.ReadSpool, "200 compressed shards have few"},
		"plain, memory holds it":              {sizesOf(20, 64*mib, false, 0, full), spec.ReadScan, "the dataset fits in memory"},
		"plain, memory does not":              {sizesOf(200, 16*mib, false, 0, full), spec.ReadGather, "of records wait in the shuffle"},
		"plain, front to back":                {sizesOf(200, 16*mib, false, 0, none), spec.ReadScan, "front to back"},
		"plain, what waits fits":              {sizesOf(200, 32*mib, false, 0, reservoir), spec.ReadScan, "the shuffle's waiting records fit"},
		"compressed, memory holds it":         {sizesOf(20, 128*mib, true, 1, full), spec.ReadScan, "fit in memory, decoded"},
		"compressed, memory does not":         {sizesOf(200, 16*mib, true, 1, full), spec.ReadSpool, "200 compressed shards have few"},
		"compressed, front to back":           {sizesOf(200, 16*mib, true, 1, none), spec.ReadScan, "decoding can start at 200 places"},
		"compressed, members of a few pieces": {sizesOf(200, 16*mib, true, 5, full), spec.ReadSpool, "have few gzip members"},
		"compressed, what waits fits":         {sizesOf(200, 64*mib, true, 1, reservoir), spec.ReadScan, "decoding can start"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.sizes.Choose(spec.ReadAuto)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Strategy, got.Reason)
			require.Contains(t, got.Reason, c.says)
			require.Equal(t, c.want == spec.ReadSpool, got.Spools(0))
			require.Equal(t, c.want == spec.ReadSpool, got.SpoolBytes > 0)
			asked, err := c.sizes.Choose(spec.ReadScan)
			require.NoError(t, err)
			require.Equal(t, Choice{Strategy: spec.ReadScan, Reason: "asked for"}, asked)
		})
	}
}

// What is decoded again in each epoch is worth keeping, whether it would be scanned or not; what fits
// in memory, or is not compressed, is not.
func TestShardsThatEachEpochDecodesAgainAreWorthKeeping(t *testing.T) {
	const mib = 1 << 20
	full := spec.Order{Shuffle: spec.ShuffleFull, Lanes: 1}
	none := spec.Order{Shuffle: spec.ShuffleNone, Lanes: 1}
	reservoir := spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 4, SizeRecords: 2000}
	for name, c := range map[string]struct {
		sizes Sizes
		again bool
	}{
		"memory holds it":           {sizesOf(20, 128*mib, true, 1, full), false},
		"not compressed":            {sizesOf(200, 16*mib, false, 0, full), false},
		"front to back":             {sizesOf(200, 16*mib, true, 1, none), true},
		"many members":              {sizesOf(200, 64*mib, true, 10, reservoir), true},
		"what waits fits in memory": {sizesOf(200, 64*mib, true, 1, reservoir), true},
		"spooled in any case":       {sizesOf(200, 16*mib, true, 1, full), false},
		"too large for --spool-max": {func() Sizes { s := sizesOf(200, 64*mib, true, 1, reservoir); s.MaxSpoolBytes = mib; return s }(), true},
		"no record of them is wanted": {func() Sizes {
			s := sizesOf(200, 16*mib, true, 1, full)
			for i := range s.Shards {
				s.Shards[i].Wanted = 0
			}
			return s
		}(), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.sizes.Choose(spec.ReadAuto)
			require.NoError(t, err)
			require.Equal(t, c.again, got.DecodesAgain, got.Reason)
			require.False(t, got.Kept)
			if !c.again {
				return
			}
			kept := c.sizes.Keep()
			require.Equal(t, spec.ReadSpool, kept.Strategy)
			require.True(t, kept.Kept)
			for i := range c.sizes.Shards {
				require.True(t, kept.Spools(i))
			}
			require.Positive(t, kept.SpoolBytes)
			require.Contains(t, kept.Reason, "the disk cache keeps the 200 compressed shards decoded (191 MiB)")
		})
	}
}

func TestTooSmallSpoolIsRefusedWithRequiredSize(t *testing.T) {
	s := sizesOf(200, 16<<20, true, 1, spec.Order{Shuffle: spec.ShuffleFull, Lanes: 1})
	s.MaxSpoolBytes = 1 << 20
	_, err := s.Choose(spec.ReadSpool)
	require.ErrorContains(t, err, "--spool-max (1.0 MiB) is less than the 191 MiB that the order needs at a time, of 200 compressed shards")
	s.MaxSpoolBytes = 1 << 30
	c, err := s.Choose(spec.ReadSpool)
	require.NoError(t, err)
	require.EqualValues(t, 200*245*4096, c.SpoolBytes, "no more than all shards")
}

// The reason is not "asked for", because there is no other way.
func TestComputedRecordsAreAlwaysGathered(t *testing.T) {
	s := sizesOf(4, 1<<30, false, 0, spec.Order{Shuffle: spec.ShuffleFull, Lanes: 1})
	s.Storage.Apart = true
	for _, asked := range []spec.Read{"", spec.ReadAuto, spec.ReadScan, spec.ReadGather, spec.ReadSpool} {
		c, err := s.Choose(asked)
		require.NoError(t, err)
		require.Equal(t, spec.ReadGather, c.Strategy)
		require.Equal(t, "each record is computed by itself", c.Reason)
	}
}

// The memory that a choice suggests is enough, and much less is not.
func TestSuggestedMemoryIsSufficient(t *testing.T) {
	const mib = 1 << 20
	named := 0
	for _, o := range []spec.Order{
		{Shuffle: spec.ShuffleFull, Lanes: 1}, {Shuffle: spec.ShuffleReservoir, Lanes: 4, SizeRecords: 2000},
		{Shuffle: spec.ShuffleReservoir, Lanes: 32, SizeRecords: 16384}, {Shuffle: spec.ShuffleBlock, Lanes: 8, SizeRecords: 9000},
	} {
		for _, decoder := range []int64{mib, 9 * mib, 130 * mib} {
			at := func(memory int64) Choice {
				s := sizesOf(200, memory, true, 1, o)
				s.Held.DecoderBytes = decoder
				c, err := s.Choose(spec.ReadAuto)
				require.NoError(t, err)
				return c
			}
			small := sizesOf(200, 16*mib, true, 1, o)
			small.Held.DecoderBytes = decoder
			enough := small.enough()
			c := at(16 * mib)
			if c.Strategy == spec.ReadScan {
				continue
			}
			named++
			require.Contains(t, c.Reason, "; about --memory "+strings.ReplaceAll(humanize.IBytes(uint64(enough)), " ", "")+" would be enough")
			require.Equal(t, spec.ReadScan, at(enough).Strategy, "%+v", o)
			less := max(enough-enough/4-16*mib, 16*mib)
			require.Equal(t, spec.ReadSpool, at(less).Strategy, "%+v, decoders of %d, %d of %d: %s", o, decoder, less, enough, at(less).Reason)
		}
	}
	require.Greater(t, named, 6)
}

// If records are a byte or two, memory is used up by the tables of pieces and by segments that
// hold little, because their tables are limited. If that were not counted, the waiting records of
// this dataset, nearly all of them, would seem to fit: each byte was then decoded 33 to 46 times.
func TestSegmentsOfShortRecordsCountAsWaiting(t *testing.T) {
	s := Sizes{
		Settings: Settings{
			MemoryBytes: 2579496, PieceBytes: 4096, PieceRecords: 8, Decoders: 64, Storage: storage.Profile{}.Or(),
			Order: spec.Order{Shuffle: spec.ShuffleReservoir, SizeRecords: 13123, Lanes: 1},
		},
		Held:       Held{Shards: 6, Packed: 6, Bytes: 18438, Records: 13776, Pieces: 1722, TableBytes: 1722 * chunkmap.TableBytes(8), DecoderBytes: 907712},
		Compressed: true,
	}
	s.Limits = NewLimits(s.MemoryBytes, 2*45000, 10, s.Storage)
	for range s.Held.Shards {
		s.Shards = append(s.Shards, Shard{DecodedBytes: 3073, Records: 2296, Wanted: 2296, EntryPoints: 34, Members: 34, Compressed: true})
	}
	require.False(t, s.Fits())
	c, err := s.Choose(spec.ReadAuto)
	require.NoError(t, err)
	require.Equal(t, spec.ReadSpool, c.Strategy, c.Reason)
}
