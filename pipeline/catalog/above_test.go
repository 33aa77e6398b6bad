package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFirstRecordAboveSizeIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := make([]plainShard, rapid.IntRange(1, 4).Draw(t, "shards"))
		most := int64(0)
		for i := range shards {
			shards[i] = drawShard(t, false)
			for _, e := range shards[i].extents {
				most = max(most, e.SizeBytes)
			}
		}
		c := sealShards(t, shards, false)
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
