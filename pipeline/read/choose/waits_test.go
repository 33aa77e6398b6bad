package choose

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// kept simulates an epoch. It returns the most records that were read and not delivered, if each
// chunk is read when its first record is due, and the most chunks that were between their first and
// their last record.
func kept(t *testing.T, o spec.Order, chunks int, recordsOf func(chunk int) int) (unsent, open int) {
	t.Helper()
	starts := make([]uint64, chunks+1)
	var chunkOf []int32
	for c := range chunks {
		n := recordsOf(c)
		starts[c+1] = starts[c] + uint64(n)
		for range n {
			chunkOf = append(chunkOf, int32(c))
		}
	}
	e, err := order.NewEpoch(o, 0, starts, nil)
	require.NoError(t, err)
	left := make([]int, chunks)
	numbers := make([]uint64, 4096)
	cursor := e.Cursor(0)
	nowUnsent, nowOpen := 0, 0
	for p := 0; p < len(chunkOf); {
		n := cursor.Next(numbers)
		require.NotZero(t, n)
		for _, record := range numbers[:n] {
			c := chunkOf[record]
			if left[c] == 0 {
				left[c] = int(starts[c+1] - starts[c])
				nowUnsent += left[c]
				nowOpen++
			}
			unsent, open = max(unsent, nowUnsent), max(open, nowOpen)
			left[c]--
			nowUnsent--
			if left[c] == 0 {
				nowOpen--
			}
		}
		p += n
	}
	return unsent, open
}

func TestEstimateCoversMemoryRetainedByOrders(t *testing.T) {
	const recordBytes = 1000
	for _, x := range []struct {
		shuffle          spec.Shuffle
		lanes, size      uint64
		chunks, least, n int // records per chunk: least … least+n-1
		atMost           float64
	}{
		{spec.ShuffleReservoir, 32, 16384, 60_000, 2, 3, 1.2},
		{spec.ShuffleReservoir, 32, 16384, 20_000, 8, 5, 1.2},
		{spec.ShuffleReservoir, 32, 16384, 9_000, 20, 21, 1.2},
		{spec.ShuffleReservoir, 32, 16384, 2_500, 128, 1, 1.2},
		{spec.ShuffleReservoir, 32, 16384, 2_500, 100, 81, 1.2},
		{spec.ShuffleReservoir, 4, 4096, 3_000, 20, 1, 1.2},
		{spec.ShuffleReservoir, 1, 1000, 4_000, 3, 1, 1.2},
		{spec.ShuffleReservoir, 8, 80, 1_000, 100, 1, 1.2},
		{spec.ShuffleBlock, 32, 16384, 60_000, 2, 3, 1.4},
		{spec.ShuffleBlock, 32, 16384, 9_000, 20, 21, 1.4},
		{spec.ShuffleBlock, 32, 16384, 2_500, 128, 1, 1.4},
		{spec.ShuffleBlock, 4, 4096, 3_000, 20, 1, 1.4},
	} {
		t.Run(fmt.Sprintf("%+v", x), func(t *testing.T) {
			o := spec.Order{Shuffle: x.shuffle, SizeRecords: x.size, Lanes: x.lanes, Groups: 1, Batch: 1, ChunkBytes: 1, ChunkRecords: 1}
			records := 0
			recordsOf := func(c int) int { return x.least + c*7919%x.n }
			for c := range x.chunks {
				records += recordsOf(c)
			}
			s := Sizes{Settings: Settings{Order: o}, Held: Held{Records: uint64(records), Bytes: int64(records) * recordBytes, Pieces: x.chunks}}
			for seed := range uint64(2) {
				o.Seed = seed
				unsent, open := kept(t, o, x.chunks, recordsOf)
				estimated := float64(s.UnsentBytes()) / recordBytes
				t.Logf("unsent %d (%.2f of the buffer), estimated %.0f (%.2f); open %d, estimated %.0f (%.2f)", unsent, float64(unsent)/float64(x.size), estimated, estimated/float64(unsent),
					open, float64(s.OpenBytes())/float64(s.Held.Bytes)*float64(x.chunks), float64(s.OpenBytes())/float64(s.Held.Bytes)*float64(x.chunks)/float64(open))
				require.GreaterOrEqual(t, estimated, float64(unsent), "memory is enough")
				require.LessOrEqual(t, estimated, x.atMost*float64(unsent), "and not far more than that")
				opened := float64(s.OpenBytes()) / float64(s.Held.Bytes) * float64(x.chunks)
				require.GreaterOrEqual(t, opened, float64(open), "the disk is enough")
				require.LessOrEqual(t, opened, 2*float64(open), "and not far more than that")
			}
		})
	}
}

// What an order has open is close to what was simulated (GB; ImageNet's 1.28 M records of 117 KB,
// and 2 M of 12.5 KB).
func TestOpenBytesApproximatesSimulation(t *testing.T) {
	const gb = 1e9
	for _, c := range []struct {
		records, recordBytes, chunkBytes float64
		want                             float64
	}{
		{1.28e6, 117e3, 337e3, 2.7}, {1.28e6, 117e3, 4.25e6, 8.3}, {1.28e6, 117e3, 16.7e6, 11.8},
		{2e6, 12.5e3, 265e3, 0.8}, {2e6, 12.5e3, 1.03e6, 1.1}, {2e6, 12.5e3, 4.04e6, 1.6},
		{4e6, 1.2e3, 153e3, 0.12},
	} {
		o := spec.Default().Order
		s := Sizes{Settings: Settings{Order: o}, Held: Held{Records: uint64(c.records), Pieces: int(c.records * c.recordBytes / c.chunkBytes), Bytes: int64(c.records * c.recordBytes)}}
		got := float64(s.OpenBytes())
		require.InEpsilon(t, c.want*gb, got, 0.2, "%v", c)
		s.Order.Shuffle = spec.ShuffleFull
		require.EqualValues(t, s.Held.Bytes, s.OpenBytes())
	}
	require.Zero(t, (&Sizes{Settings: Settings{Order: spec.Default().Order}}).OpenBytes())
}
