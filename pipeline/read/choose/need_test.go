package choose

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
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

// The cases were measured: CPU time of an epoch with small pieces, and with large ones.
func TestSpoolHasSmallPiecesIfMuchWaits(t *testing.T) {
	type dataset struct {
		records, pieces   uint64
		bytes, compressed int64
		tables            int64
	}
	mixed := dataset{12000, 529, 141 << 20, 71 << 20, 600 << 10} // tars, half of them compressed
	short := dataset{200_000, 1568, 78 << 20, 78 << 20, 7 << 20} // lines
	long := dataset{48000, 400, 98 << 20, 98 << 20, 2 << 20}
	for _, c := range []struct {
		d         dataset
		memoryMiB int64
		records   uint64 // in the shuffle
		small     bool
	}{
		{mixed, 8, 1000, true},    // 0.40 s, 0.69 s
		{mixed, 16, 1000, false},  // 0.42 s, 0.29 s
		{mixed, 32, 4000, true},   // 0.35 s, 0.48 s
		{mixed, 48, 4000, false},  // 0.40 s, 0.30 s
		{mixed, 64, 4000, false},  // 0.43 s, 0.22 s
		{short, 8, 16384, true},   // 2.5 s, 8.5 s
		{short, 24, 16384, false}, // 0.57 s, 0.42 s
		{short, 32, 60000, true},  // 1.5 s, 3.3 s
		{short, 48, 60000, false}, // 0.54 s, 0.49 s
		{long, 24, 4000, true},    // 0.63 s, 1.18 s
		{long, 32, 4000, false},   // 0.50 s, 0.40 s
		{long, 48, 16384, true},   // 0.6 s, 3.3 s
		{long, 64, 16384, false},  // 0.63 s, 0.59 s
	} {
		v := &Survey{Settings: Settings{MemoryBytes: c.memoryMiB << 20, PieceBytes: 256 << 10, PieceRecords: 128}}
		v.Settings.Order = spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 32, SizeRecords: c.records}
		v.Settings.Storage.Kind = storage.KindVirtual
		v.Held = Held{Shards: 8, Packed: 8, Bytes: c.d.bytes, Records: c.d.records, Pieces: int(c.d.pieces), TableBytes: c.d.tables}
		v.Limits = NewLimits(c.memoryMiB<<20, 0, 256<<10, v.Settings.Storage)
		choice := &Choice{bytes: c.d.bytes, compressed: c.d.compressed}
		require.Equal(t, c.small, v.LoadsRecords(choice), "%+v", c)
		v.Settings.Order.Shuffle = spec.ShuffleNone
		require.False(t, v.LoadsRecords(choice))
		v.Settings.Order.Shuffle = spec.ShuffleFull
		require.True(t, v.LoadsRecords(choice))
		v.Settings.Order.Shuffle = spec.ShuffleReservoir
		v.Held.Packed, v.Settings.Storage.Kind = 4, storage.KindObject
		require.False(t, v.LoadsRecords(choice), "each small piece would be a request")
	}
}
