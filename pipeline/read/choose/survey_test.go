package choose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

var settings = Settings{MemoryBytes: 1 << 20, PieceBytes: 1 << 20, PieceRecords: 10, Decoders: 4}

func most(x *readtest.Index, shard int) readtest.Some {
	part := make(readtest.Some, x.Records())
	for i := range part {
		part[i] = x.ExtentTable[i].Shard != shard
	}
	return part
}

func TestRetainedSizesFollowPart(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 3, Records: 25, MaxBytes: 100})
	v, err := NewSurvey(d.Index, most(d.Index, 1), settings)
	require.NoError(t, err)
	require.Equal(t, 9, v.Places.Table.Len())
	require.Equal(t, 6, v.Held.Pieces)
	require.Equal(t, 2, v.Held.Shards)
	require.Equal(t, 2, v.Held.Packed)
	require.EqualValues(t, 50, v.Held.Records)
	require.Equal(t, d.Index.Shard(0).DecodedBytes+d.Index.Shard(2).DecodedBytes, v.Held.Bytes)
	sizes := v.Sizes()
	require.EqualValues(t, 25, sizes.Shards[0].Wanted)
	require.Zero(t, sizes.Shards[1].Wanted)
	require.True(t, sizes.Compressed)
}

func TestSequentialReadsUsePiecesOfManyRecords(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 300, MaxBytes: 100})
	s := settings
	s.Order.Shuffle = spec.ShuffleNone
	v, err := NewSurvey(d.Index, most(d.Index, -1), s)
	require.NoError(t, err)
	require.Equal(t, 2*3, v.Places.Table.Len(), "of 128 records")
}

func TestChangedPieceSizeKeepsSettings(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 300, MaxBytes: 100, SameSize: true})
	v, err := NewSurvey(d.Index, most(d.Index, -1), settings)
	require.NoError(t, err)
	w, err := v.WithPieces(200, false)
	require.NoError(t, err)
	require.Equal(t, v.Settings, w.Settings)
	require.Equal(t, 2*150, w.Places.Table.Len())
	require.Greater(t, w.TableBytes, v.TableBytes)
	require.Less(t, w.Limits.CacheBytes, v.Limits.CacheBytes, "tables come off the memory")
}

func TestDecoderMemoryComesFromIndex(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "zst", Shards: 2, Records: 25, MaxBytes: 100})
	held := func() int64 {
		v, err := NewSurvey(d.Index, most(d.Index, -1), settings)
		require.NoError(t, err)
		return v.Held.DecoderBytes
	}
	guess := held()
	d.Index.ShardTable[1].DecoderBytes = 9 << 20
	require.Greater(t, held(), int64(9<<20))
	require.Less(t, guess, int64(4<<20))
}
