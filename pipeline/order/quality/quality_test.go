package quality_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// dataset is a dataset of equal shards.
type dataset struct{ shards, perShard uint64 }

func (d dataset) total() uint64 { return d.shards * d.perShard }

func (d dataset) shardStarts() []uint64 { return d.chunkStarts(0, d.perShard) }

func (d dataset) chunkStarts(_, chunkRecords uint64) []uint64 {
	var starts []uint64
	for s := range d.shards {
		for r := uint64(0); r < d.perShard; r += chunkRecords {
			starts = append(starts, s*d.perShard+r)
		}
	}
	return append(starts, d.total())
}

func (d dataset) epoch(t *testing.T, o spec.Order) *order.Epoch {
	e, err := order.NewEpoch(o, 0, d.chunkStarts(o.ChunkBytes, o.ChunkRecords), nil)
	require.NoError(t, err)
	return e
}

func TestDefaultsMixAsMeasured(t *testing.T) {
	// Measured with 10⁶ records in 200 shards: 1.79 for G, 1.66 to 1.88 for a worker.
	d := dataset{200, 5000}
	o := spec.Default().Order
	e := d.epoch(t, o)
	g := quality.OfEpoch(e, o.SizeRecords, d.total(), d.shardStarts())
	require.True(t, g.Whole)
	require.Equal(t, int(d.total()/quality.BatchRecords), g.Batches)
	require.InDelta(t, 1.79, g.Value, 0.1)

	stretch := quality.OfEpoch(e, o.SizeRecords, d.total()/2, d.shardStarts())
	require.False(t, stretch.Whole)
	require.InDelta(t, g.Value, stretch.Value, 0.1, "a stretch stands for the epoch")

	deal := spec.Default().Deal
	deal.Workers = 4
	v, err := order.NewView(e, nil, deal)
	require.NoError(t, err)
	w := quality.OfWorker(v, 0, o.SizeRecords, d.total(), d.shardStarts())
	require.InDelta(t, 1.77, w.Value, 0.15)
}

func TestShufflesRankAsExpected(t *testing.T) {
	d := dataset{50, 1000}
	small := spec.Default().Order
	small.SizeRecords, small.Lanes = 2048, 4
	with := func(change func(*spec.Order)) spec.Order {
		o := small
		change(&o)
		return o
	}
	for _, c := range []struct {
		name     string
		order    spec.Order
		low, top float64
	}{
		{"no shuffle: each batch is of one shard", with(func(o *spec.Order) { o.Shuffle = spec.ShuffleNone }), 200, 256},
		{"a full permutation is independent sampling", with(func(o *spec.Order) { o.Shuffle = spec.ShuffleFull }), 0.93, 1.07},
		{"a buffer that holds everything as well", with(func(o *spec.Order) { o.SizeRecords = 50_000 }), 0.93, 1.07},
		// 1 + B·b/(2K) = 1 + 128·256/4096 = 9; chunks of 104 at the end of a shard lower it.
		{"a small buffer follows the formula", small, 7, 10.5},
		{"blocks mix less than a reservoir", with(func(o *spec.Order) { o.Shuffle = spec.ShuffleBlock }), 10.5, 25},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := quality.OfEpoch(d.epoch(t, c.order), c.order.SizeRecords, d.total(), d.shardStarts())
			require.GreaterOrEqual(t, e.Value, c.low)
			require.LessOrEqual(t, e.Value, c.top)
		})
	}
}

func TestNothingToMeasureIsPerfect(t *testing.T) {
	o := spec.Default().Order
	for name, d := range map[string]dataset{"one shard": {1, 1000}, "less than a batch": {10, 20}, "no shard": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			e := quality.OfEpoch(d.epoch(t, o), o.SizeRecords, 1<<20, d.shardStarts())
			require.Equal(t, 1.0, e.Value)
			require.Zero(t, e.Batches)
		})
	}
}

func TestEmptyShardsAreIgnored(t *testing.T) {
	d := dataset{10, 1000}
	o := spec.Default().Order
	o.Shuffle = spec.ShuffleFull
	e := d.epoch(t, o)
	plain := quality.OfEpoch(e, 0, d.total(), d.shardStarts())
	starts := append([]uint64{0}, d.shardStarts()...) // an empty shard in front
	require.Equal(t, plain, quality.OfEpoch(e, 0, d.total(), starts))
}

func TestAdviceHelps(t *testing.T) {
	d := dataset{50, 1000}
	o := spec.Default().Order
	o.SizeRecords, o.Lanes = 1024, 4
	s := quality.Subject{ShardStarts: d.shardStarts(), ChunkStarts: d.chunkStarts}
	now := quality.OfEpoch(d.epoch(t, o), o.SizeRecords, d.total(), d.shardStarts()).Value
	require.Greater(t, now, float64(quality.Poor))

	advice, err := quality.Advise(s, o, 0, 2)
	require.NoError(t, err)
	got := map[string]quality.Advice{}
	for _, a := range advice {
		require.Less(t, a.Chi, now, "%s %s", a.Flag, a.Value)
		got[a.Flag] = a
	}
	require.Contains(t, got, "--shuffle-size")
	require.LessOrEqual(t, got["--shuffle-size"].Chi, 2.0)
	require.Contains(t, got, "--chunk-records")
	require.Equal(t, "full", got["--shuffle"].Value)

	o.Shuffle = spec.ShuffleNone
	advice, err = quality.Advise(s, o, 0, 2)
	require.NoError(t, err)
	require.Len(t, advice, 1)
	require.Equal(t, "reservoir", advice[0].Value)

	o.Shuffle = spec.ShuffleFull
	advice, err = quality.Advise(s, o, 0, 2)
	require.NoError(t, err)
	require.Empty(t, advice, "nothing is better than full")
}
