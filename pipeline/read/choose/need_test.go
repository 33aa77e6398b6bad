package choose

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// openShards returns the maximum number of shards that an order has open at a time: between the
// first and the last of their records. The order is divided at lanes: a shard that two lanes share
// is open twice, once for each.
func openShards(t *testing.T, o spec.Order, shards, records int) int {
	starts := make([]uint64, shards+1)
	for i := range starts {
		starts[i] = uint64(i * records)
	}
	e, err := order.NewEpoch(o, 0, starts, nil)
	require.NoError(t, err)
	places := make([][]int, shards) // of a shard's records in G, ascending
	numbers := make([]uint64, 4096)
	c := e.Cursor(0)
	for p := 0; p < shards*records; {
		n := c.Next(numbers)
		for _, record := range numbers[:n] {
			s := int(record) / records
			places[s] = append(places[s], p)
			p++
		}
	}
	opens := make([]int, shards*records+1)
	apart := 12 * int(o.SizeRecords) // no record waits that long
	for _, at := range places {
		from := 0
		for i := 1; i <= len(at); i++ {
			if i == len(at) || at[i]-at[i-1] > apart {
				opens[at[from]]++
				opens[at[i-1]]--
				from = i
			}
		}
	}
	most, now := 0, 0
	for _, n := range opens {
		now += n
		most = max(most, now)
	}
	return most
}

func TestSpoolHasSpaceForOpenShardsOfOrder(t *testing.T) {
	for _, x := range []struct{ shards, records, lanes, size int }{
		{64, 1000, 8, 4096}, {200, 1000, 32, 16384}, {200, 5000, 32, 16384}, {100, 10_000, 16, 8192}, {500, 200, 8, 2048}, {300, 1000, 4, 8192}, {300, 2000, 1, 4096},
	} {
		t.Run(fmt.Sprintf("%+v", x), func(t *testing.T) {
			o := spec.Order{Shuffle: spec.ShuffleReservoir, SizeRecords: uint64(x.size), Lanes: uint64(x.lanes), Groups: 1, Batch: 1, ChunkBytes: 1, ChunkRecords: 1}
			var peaks []int
			for seed := range uint64(3) {
				o.Seed = seed
				peaks = append(peaks, openShards(t, o, x.shards, x.records))
			}
			c := compressed{shards: uint64(x.shards), records: uint64(x.shards * x.records), largest: budget.PageBytes, rounded: int64(x.shards) * budget.PageBytes}
			need := int(c.need(o, 1) / budget.PageBytes)
			peak := slices.Max(peaks)
			require.Greater(t, peak, x.lanes+1, "a shard a lane and one more is not enough")
			require.GreaterOrEqual(t, need+need/10+1, peak, "within a tenth where lanes are few")
			require.LessOrEqual(t, need, 3*peak/2)
		})
	}
}
