package choose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// atBucket returns the sizes of uncompressed shards in a bucket.
func atBucket(shards int, memory, cacheRoom int64, o spec.Order) Sizes {
	s := sizesOf(shards, memory, false, 0, o)
	s.Storage = storage.DefaultProfile(storage.KindObject)
	s.Limits = NewLimits(memory, 0, 0, s.Storage)
	s.CacheRoomBytes = cacheRoom
	return s
}

func TestRemoteChunkIsOneRequestIfMemoryOrCacheAllows(t *testing.T) {
	const mib = 1 << 20
	full := spec.Order{Shuffle: spec.ShuffleFull, Lanes: 1}
	none := spec.Order{Shuffle: spec.ShuffleNone, Lanes: 1}
	reservoir := spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 32, SizeRecords: 64 << 10} // about 72 MB wait, 400 MB are open
	for name, c := range map[string]struct {
		sizes  Sizes
		want   spec.Read
		chunks bool
		says   string
	}{
		"memory holds all":                          {atBucket(20, 64*mib, 0, full), spec.ReadScan, false, "the dataset fits in memory"},
		"front to back":                             {atBucket(2000, 16*mib, 0, none), spec.ReadScan, false, "front to back"},
		"memory holds what waits":                   {atBucket(2000, 160*mib, 0, reservoir), spec.ReadScan, false, "MiB of records that wait in the shuffle"},
		"memory holds what waits, and a cache":      {atBucket(2000, 160*mib, 1<<40, reservoir), spec.ReadScan, false, "of records that wait in the shuffle"},
		"memory is short, and a cache":              {atBucket(2000, 64*mib, 2<<30, reservoir), spec.ReadGather, true, "the cache keeps the"},
		"memory is short, and so is the cache":      {atBucket(2000, 64*mib, 400*mib, reservoir), spec.ReadGather, false, "up to one request per record"},
		"memory is short, and there is no cache":    {atBucket(2000, 64*mib, 0, reservoir), spec.ReadGather, false, "up to one request per record"},
		"full, memory is short, the cache holds it": {atBucket(2000, 64*mib, 3<<30, full), spec.ReadGather, true, "the cache keeps the"},
		"full, memory is short, no cache holds it":  {atBucket(2000, 64*mib, 1<<30, full), spec.ReadGather, false, "up to one request per record"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.sizes.Choose(spec.ReadAuto)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Strategy, got.Reason)
			require.Equal(t, c.chunks, got.Chunks)
			require.Contains(t, got.Reason, c.says)
			require.Equal(t, c.want == spec.ReadGather && !c.chunks, got.Warning != "")
		})
	}
}

// What a warning suggests is enough, and hardly more than needed.
func TestSuggestedMemoryAndCacheAreSufficient(t *testing.T) {
	for _, o := range []spec.Order{
		{Shuffle: spec.ShuffleReservoir, Lanes: 32, SizeRecords: 64 << 10},
		{Shuffle: spec.ShuffleReservoir, Lanes: 4, SizeRecords: 400_000},
		{Shuffle: spec.ShuffleBlock, Lanes: 32, SizeRecords: 64 << 10},
		{Shuffle: spec.ShuffleFull, Lanes: 1},
	} {
		s := atBucket(2000, 16<<20, 0, o)
		c, err := s.Choose(spec.ReadAuto)
		require.NoError(t, err)
		n := s.Needs()
		require.EqualValues(t, 20_000, n.Requests)
		require.EqualValues(t, 2_000_000, n.Records)
		require.Contains(t, c.Warning, "up to 2,000,000 requests, one per record; it takes 20,000, one per chunk")
		require.Contains(t, c.Warning, "--memory "+flagSize(n.MemoryBytes))
		require.Contains(t, c.Warning, "--cache-size "+flagSize(n.CacheBytes))

		enough := atBucket(2000, n.MemoryBytes, 0, o)
		c, err = enough.Choose(spec.ReadAuto)
		require.NoError(t, err)
		require.Equal(t, spec.ReadScan, c.Strategy, "%+v", o)
		less := atBucket(2000, n.MemoryBytes/5*4, 0, o)
		c, err = less.Choose(spec.ReadAuto)
		require.NoError(t, err)
		require.Equal(t, spec.ReadGather, c.Strategy, "%+v", o)

		s.CacheRoomBytes = n.CacheBytes
		c, err = s.Choose(spec.ReadAuto)
		require.NoError(t, err)
		require.True(t, c.Chunks)
		require.LessOrEqual(t, s.Share(c), s.CacheRoomBytes)
		s.CacheRoomBytes--
		c, err = s.Choose(spec.ReadAuto)
		require.NoError(t, err)
		require.False(t, c.Chunks)
	}
}

func TestCacheThatHoldsEverythingHasNoShare(t *testing.T) {
	s := atBucket(2000, 16<<20, 3<<30, spec.Order{Shuffle: spec.ShuffleFull, Lanes: 1})
	c := Choice{Strategy: spec.ReadGather, Chunks: true}
	require.Zero(t, s.Share(c))
	s = atBucket(2000, 16<<20, 1<<30, spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 32, SizeRecords: 64 << 10})
	require.Greater(t, s.Share(c), s.OpenBytes())
	require.EqualValues(t, s.CacheRoomBytes/keptAheadPart, s.Share(Choice{Strategy: spec.ReadScan}), "what is read ahead; the rest is for the next epoch")
	require.Zero(t, s.Share(Choice{Strategy: spec.ReadGather}), "nothing is planned")
}

func TestReadersShareLookahead(t *testing.T) {
	const mb = 1e6
	require.EqualValues(t, LeastLookahead, Reach(0, 0, 1))
	require.EqualValues(t, LeastLookahead/4, Reach(0, 1*mb, 4))
	require.EqualValues(t, 400*mb, Reach(0, 200*mb, 1))
	require.EqualValues(t, 400*mb, Reach(0, 200*mb, 4))
	require.EqualValues(t, MostLookahead, Reach(0, 1e12, 1))
	require.EqualValues(t, MostLookahead/4, Reach(0, 1e12, 4))
	require.EqualValues(t, 250*mb, Reach(1000*mb, 1e12, 4), "as asked for")
}
