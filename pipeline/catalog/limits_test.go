package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

func TestAShardWhoseIndexGrowsBeyondAllBoundsIsRefused(t *testing.T) {
	p := newPacker(true, false)
	p.most = 1 << 20
	var err error
	n := int64(0)
	for ; err == nil; n++ {
		require.Less(t, n, int64(1<<20), "10 bytes a record and more")
		err = p.add(unpack.Extent{OffsetBytes: 512 * n, SizeBytes: 512, KeyHash: uint64(n)})
	}
	var refused *unpack.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "split the shard")
	require.Greater(t, n, int64(1<<16))
}

func TestTheFirstRecordAboveASizeIsFound(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		shards := make([]plainShard, rapid.IntRange(1, 4).Draw(t, "shards"))
		most := int64(0)
		for i := range shards {
			shards[i] = drawShard(t, false)
			for _, e := range shards[i].extents {
				most = max(most, e.SizeBytes)
			}
		}
		c := sealShards(t, dir, shards, false)
		defer c.Close()
		bound := rapid.Int64Range(0, most).Draw(t, "bound")
		var want Extent
		found := false
		for i, s := range shards {
			for o, e := range s.extents {
				if e.SizeBytes > bound && !found {
					want, found = Extent{Shard: i, Ordinal: uint64(o), OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes}, true
				}
			}
		}
		got, ok := c.RecordAbove(bound)
		require.Equal(t, found, ok)
		require.Equal(t, want, got)
	})
}
