package pipeline

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// The formula is close to what the order gives to nodes, for chunks of few records and of many, and
// for as many groups as nodes, fewer, more, and a number that does not divide theirs.
func TestNodesReadForecastShareOfChunks(t *testing.T) {
	const records, batch, workers = 80_000, 16, 48
	for _, perChunk := range []uint64{1, 3, 40} {
		starts := []uint64{}
		for i := uint64(0); i <= records; i += perChunk {
			starts = append(starts, i)
		}
		if starts[len(starts)-1] != records {
			starts = append(starts, records)
		}
		counts := ChunkRecords{}
		for i := range len(starts) - 1 {
			counts[starts[i+1]-starts[i]]++
		}
		for _, groups := range []uint64{1, 2, 4, 8} {
			o := spec.Default().Order
			o.Groups, o.Lanes, o.Batch = groups, 32, 1
			if groups > 1 {
				o.Batch = batch
			}
			e, err := order.NewEpoch(o, 1, starts, nil)
			require.NoError(t, err)
			all := make([]uint64, records)
			require.Equal(t, records, e.Cursor(0).Next(all))
			for _, nodes := range []uint64{1, 2, 4, 6, 8, 16} {
				t.Run(fmt.Sprintf("%d records a chunk, %d groups, %d nodes", perChunk, groups, nodes), func(t *testing.T) {
					fetched := map[[2]uint64]bool{} // node and chunk
					for p, record := range all {
						fetched[[2]uint64{uint64(p) / batch % workers % nodes, record / perChunk}] = true
					}
					real := float64(len(fetched)) / float64(nodes) / float64(len(starts)-1)
					require.InDelta(t, real, NodeShare(nodes, groups, counts), 0.02)
				})
			}
		}
	}
	require.Zero(t, NodeShare(0, 1, ChunkRecords{1: 1}))
	require.Zero(t, NodeShare(1, 0, ChunkRecords{1: 1}))
	require.Zero(t, NodeShare(1, 1, nil))
	require.InDelta(t, 0.315, NodeShare(8, 1, ChunkRecords{2: 3, 3: 4, 4: 2}), 0.01, "the share that was simulated for ImageNet")
}

func forecastService(t testing.TB, s spec.Spec) (*Dataset, *ServiceForecast) {
	t.Helper()
	d := open(t, s)
	f, err := d.ForecastService(t.Context())
	require.NoError(t, err)
	return d, f
}

func TestRemoteEpochMatchesForecast(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 60)
	s := testSpec(t, w.dir)
	_, none := forecastService(t, s)
	require.Nil(t, none, "a directory is no service")

	s.Dataset, s.IndexDir = w.url, t.TempDir()
	s.Order.ChunkBytes, s.Order.ChunkRecords, s.Order.SizeRecords = 16<<10, 1000, 50
	d, f := forecastService(t, s)
	require.Zero(t, f.GetDollars, "a web server has no price")
	require.Len(t, f.Chunks, 2, "256 KiB are whole shards, and so are more")
	require.True(t, f.Bounded)
	small, large := f.Chunks[0], f.Chunks[1]
	require.True(t, small.InUse)
	require.EqualValues(t, 16<<10, small.ChunkBytes)
	require.EqualValues(t, d.Chunks(), small.Chunks)
	require.Equal(t, small.Chunks, small.Requests, "one request a chunk")
	require.EqualValues(t, servedShards, large.Requests)
	require.Equal(t, small.Bytes, large.Bytes)
	require.Equal(t, d.StreamBytes(), small.Bytes)
	require.Greater(t, large.Mixing, small.Mixing)
	require.Greater(t, small.Mixing, 1.0)
	require.Less(t, small.DiskBytes, large.DiskBytes)
	require.LessOrEqual(t, large.DiskBytes, large.Bytes)
	require.LessOrEqual(t, small.MemoryBytes, small.DiskBytes)
	counted := uint64(0)
	for records, n := range small.Records {
		counted += records * n
	}
	require.Equal(t, d.Records(), counted)

	s.Order.SizeRecords = 1 << 20
	_, f = forecastService(t, s)
	require.Equal(t, 1.0, f.Chunks[0].Mixing, "the buffer holds the dataset")

	s.Order.Shuffle = spec.ShuffleFull
	_, f = forecastService(t, s)
	require.Len(t, f.Chunks, 1)
	require.Equal(t, small.Requests, f.Chunks[0].Requests, "memory holds the dataset")
	require.Zero(t, f.Chunks[0].MemoryBytes)

	s.Order.Shuffle = spec.ShuffleNone
	_, f = forecastService(t, s)
	require.Len(t, f.Chunks, 1)
	require.Zero(t, f.Chunks[0].Mixing, "there is no buffer")
	require.LessOrEqual(t, f.Chunks[0].DiskBytes, int64(24<<10), "one chunk at a time")
}

func TestRemoteCompressedShardsAreReadOnce(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "jsonl", Codec: "zst"}, 60)
	s := testSpec(t, w.dir)
	s.Dataset, s.IndexDir = w.url, t.TempDir()
	d, f := forecastService(t, s)
	require.Equal(t, servedShards, f.Compressed)
	bytes := int64(0)
	for i := range d.Catalog().Shards() {
		bytes += d.Catalog().Shard(i).Object.SizeBytes
	}
	for _, c := range f.Chunks {
		require.EqualValues(t, servedShards, c.Requests)
		require.Equal(t, bytes, c.Bytes)
	}
}

// A chunk size with which the dataset could not be read has no forecast, but a reason.
func TestForecastNamesRefusedChunkSizes(t *testing.T) {
	// Shards of several frames are one chunk each or many, and a spool holds three shards, not four.
	const frames, records = 8, 100
	w := serveShards(t, synthetic.Shape{Format: "jsonl", Codec: "zst"}, 1)
	shape := synthetic.Shape{Format: "jsonl", Codec: "zst", RecordBytes: 3000, Seed: 1}
	for i, name := range w.names {
		var b bytes.Buffer
		for frame := range uint64(frames) {
			require.NoError(t, shape.WriteShard(&b, (uint64(i)*frames+frame)*records, records, nil))
		}
		w.server.PutBytes("train/"+name, b.Bytes())
	}
	s := testSpec(t, w.dir)
	s.Dataset, s.IndexDir, s.Read, s.SpoolDir, s.SpoolMaxBytes = w.url, t.TempDir(), spec.ReadSpool, readtest.DiskDir(t), 8<<20
	s.Order.ChunkBytes, s.Order.ChunkRecords, s.Order.SizeRecords, s.Order.Lanes = 4<<20, 1<<20, 10, 1
	_, f := forecastService(t, s)
	require.Len(t, f.Chunks, 1)
	require.True(t, f.Chunks[0].InUse)
	require.EqualValues(t, servedShards, f.Chunks[0].Chunks)
	require.True(t, f.Bounded)
	require.Len(t, f.Refused, 2)
	for i, size := range []uint64{256 << 10, 1 << 20} {
		require.Equal(t, size, f.Refused[i].ChunkBytes)
		require.ErrorContains(t, f.Refused[i].Why, "--spool-max (8.0 MiB) is less than")
	}

	s.Order.ChunkBytes = 1 << 20
	_, err := open(t, s).ForecastService(t.Context())
	require.ErrorContains(t, err, "--spool-max", "those are in use")
}

// A part of the records takes part of the bytes.
func TestSplitRequestsOnlyItsRecords(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 60)
	s := testSpec(t, w.dir)
	s.Dataset, s.IndexDir = w.url, t.TempDir()
	s.Order.Split = spec.Split{Part: spec.Part{From: 0, To: 500_000_000}, Seed: 1, By: spec.SplitByRecord}
	d, f := forecastService(t, s)
	require.NotZero(t, d.Records())
	for _, c := range f.Chunks {
		require.LessOrEqual(t, d.StreamBytes(), c.Bytes)
		require.LessOrEqual(t, c.Requests, c.Chunks)
	}
}

// A forecast of an epoch is what the server is then asked for: for each way to read, with a disk
// cache that has room for the dataset and without one. Hedges are off, because their number depends
// on how busy the machine is.
func TestServiceForecastsAreWhatAnEpochRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads, and the race detector changes no count")
	}
	const mib = 1 << 20
	tar, jsonl, zst := synthetic.Shape{Format: "tar", RecordBytes: 4096}, synthetic.Shape{Format: "jsonl"}, synthetic.Shape{Format: "jsonl", Codec: "zst"}
	for _, c := range []struct {
		shape    synthetic.Shape
		shuffle  spec.Shuffle
		memory   int64
		strategy spec.Read
	}{
		{tar, spec.ShuffleReservoir, 256 * mib, spec.ReadScan},
		{tar, spec.ShuffleReservoir, 16 * mib, spec.ReadGather},
		{tar, spec.ShuffleNone, 16 * mib, spec.ReadScan},
		{jsonl, spec.ShuffleFull, 256 * mib, spec.ReadScan},
		{jsonl, spec.ShuffleFull, 16 * mib, spec.ReadGather},
		{zst, spec.ShuffleReservoir, 256 * mib, spec.ReadScan},
		{zst, spec.ShuffleFull, 16 * mib, spec.ReadSpool},
	} {
		w := serveShards(t, c.shape, 2000)
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s%s, shuffle %s, %d MiB, cached %v", c.shape.Format, c.shape.Codec, c.shuffle, c.memory/mib, cached), func(t *testing.T) {
				s := spec.Default()
				s.Dataset, s.IndexDir, s.SpoolDir, s.Remote.Hedge, s.Deal.Workers = w.url, t.TempDir(), readtest.DiskDir(t), spec.HedgeOff, 1
				s.Order.Shuffle, s.Order.SizeRecords, s.Order.Lanes, s.MemoryBytes = c.shuffle, 4096, 8, c.memory
				s.Cache.Off = true
				open(t, s) // the index pass fills no cache
				if cached {
					s.Cache = cachedSpec(t, w).Cache
				}
				d, f := forecastService(t, s)
				x := forecast(t, d, 0, 1<<60).Storages[0]
				require.Equal(t, c.strategy, x.Strategy, x.Reason)
				i := slices.IndexFunc(f.Chunks, func(c ChunkForecast) bool { return c.InUse })
				set, err := d.Set(t.Context(), 0, nil, s.Deal)
				require.NoError(t, err)
				before := len(w.server.Log())
				readFile(t, set, 0, stream.Data, mib)
				requests, bytes := w.asked(before)
				t.Logf("forecast %d requests, %d bytes; happened %d, %d", f.Chunks[i].Requests, f.Chunks[i].Bytes, requests, bytes)
				require.InEpsilon(t, requests, f.Chunks[i].Requests, 0.1)
				require.InEpsilon(t, bytes, f.Chunks[i].Bytes, 0.1)
			})
		}
	}
}
