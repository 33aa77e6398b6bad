package pipeline

import (
	"context"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// ServiceForecast is what a whole epoch costs at the service that stores the dataset, read by one
// reader, with nothing in memory at its start. Of what the disk cache has, only shards that it keeps
// decoded are taken into account.
type ServiceForecast struct {
	Name       string          // of the dataset's root, without secrets
	GetDollars float64         // list price of a request; 0 if unknown
	Chunks     []ChunkForecast // by ChunkBytes, ascending; one of them is InUse
	Refused    []RefusedChunks // by ChunkBytes, ascending
	// Bounded is set if larger chunks than those listed would be cut by --chunk-records.
	Bounded    bool
	Compressed int // shards that are decoded from their beginnings
}

// ChunkForecast is the cost with one chunk size.
type ChunkForecast struct {
	ChunkBytes uint64
	InUse      bool // the spec's chunk size
	Chunks     uint64
	Requests   uint64
	Bytes      int64
	// Estimated means that Requests and Bytes are close, not exact: a dry run's counts are
	// extrapolated, pieces are dropped and requested again, or a disk cache that is too small for
	// the order saves some requests.
	Estimated bool
	Records   ChunkRecords // of the chunks
	// Mixing is an estimate of how well batches of 256 mix, as χ²/df: 1 is independent sampling. 0
	// if there is no buffer.
	Mixing float64
	// MemoryBytes is the most that waits in memory for its turn if each chunk is read when its
	// first record is delivered; reading ahead comes on top. DiskBytes is the most that whole
	// chunks take between their first and last record.
	MemoryBytes, DiskBytes int64
}

// RefusedChunks is a chunk size that is not in Chunks, because the dataset could not be read with it.
type RefusedChunks struct {
	ChunkBytes uint64
	Why        error // names the setting that is too small
}

// batchRecords is the batch size for which mixing is estimated, and offeredChunks are the chunk
// sizes compared with the one in use.
const batchRecords = 256

var offeredChunks = []uint64{256 << 10, 1 << 20, 4 << 20, 8 << 20}

// walkedRecords is how much of an epoch is examined to find what waits, and walkedBuffers the least
// number of buffers: what waits does not grow any more from the second buffer on.
const (
	walkedRecords = 1 << 20
	walkedBuffers = 4
)

// ForecastService forecasts what an epoch of the spec costs at the service that stores the dataset;
// nil if the dataset is in a file system. It reads no data.
//
// It goes through all records once, at about 50 ns each, and through 2²⁰ records of each order that
// is compared, at about 100 ns each. Orders whose chunks may be read more than once are run dry: the
// first records if each is read on its own, else up to some seconds of each (see read.Survey). It
// ends early with ctx's error.
func (d *Dataset) ForecastService(ctx context.Context) (*ServiceForecast, error) {
	if d.mount.service == nil {
		return nil, nil
	}
	g, release := d.acquire()
	defer release()
	return g.forecastService(ctx)
}

func (g *generation) forecastService(ctx context.Context) (*ServiceForecast, error) {
	f := &ServiceForecast{Name: g.catalog.Root()}
	if strings.HasPrefix(f.Name, "s3://") {
		f.GetDollars = getDollars
	}
	for i := range g.catalog.Shards() {
		if g.catalog.Shard(i).Codec != nil {
			f.Compressed++
		}
	}
	sizes := append([]uint64{g.spec.Order.ChunkBytes}, offeredChunks...)
	slices.Sort(sizes)
	var tallies []*chunkTally
	for _, size := range slices.Compact(sizes) {
		inUse := size == g.spec.Order.ChunkBytes
		if shuffle := g.spec.Order.Shuffle; !inUse && (shuffle == spec.ShuffleFull || shuffle == spec.ShuffleNone) {
			continue // other chunks give the same order
		}
		t, err := g.newTally(size, f.Compressed > 0)
		if err != nil {
			return nil, err
		}
		if err := t.choose(g); err != nil {
			if inUse {
				return nil, err
			}
			f.Refused = append(f.Refused, RefusedChunks{size, err})
			continue
		}
		if n := len(tallies); n > 0 && slices.Equal(tallies[n-1].starts, t.starts) {
			f.Bounded = true
			if inUse {
				t.forecast.InUse = true
				tallies[n-1] = t
			}
			continue
		}
		t.forecast.InUse = inUse
		tallies = append(tallies, t)
	}
	if err := g.tally(ctx, tallies); err != nil {
		return nil, err
	}
	for _, t := range tallies {
		e, err := order.NewEpoch(t.order, g.spec.Epoch, g.chunkStarts(t.order.ChunkBytes, t.order.ChunkRecords), g.part)
		if err != nil {
			return nil, err
		}
		if err := g.walk(ctx, t, e); err != nil {
			return nil, err
		}
		if err := t.count(ctx, e, g); err != nil {
			return nil, err
		}
		f.Chunks = append(f.Chunks, t.finish(g))
	}
	return f, nil
}

// chunkTally adds up the cost of chunks of one size.
type chunkTally struct {
	forecast ChunkForecast
	order    spec.Order
	survey   *read.Survey
	choice   read.Choice
	// compressed is set if there are compressed shards.
	compressed bool
	starts     []uint64
	bytes      []int64 // total size of each chunk's records
	at         int     // the chunk of the next record

	// The request being built.
	shard      int
	begin, end int64
}

// newTally returns the tally of chunks of one size, for choose.
func (g *generation) newTally(chunkBytes uint64, compressed bool) (t *chunkTally, err error) {
	t = &chunkTally{starts: g.starts, order: g.spec.Order, survey: g.survey, compressed: compressed, shard: -1}
	t.forecast = ChunkForecast{ChunkBytes: chunkBytes, Records: ChunkRecords{}}
	if chunkBytes != t.order.ChunkBytes {
		t.order.ChunkBytes = chunkBytes
		t.starts = g.chunkStarts(chunkBytes, t.order.ChunkRecords)
		if t.survey, err = g.surveyOf(t.order); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// choose chooses how the chunks are read, and counts them. It returns an error if a mount with these
// chunks would be refused.
func (t *chunkTally) choose(g *generation) (err error) {
	if t.choice, err = t.survey.Choose(g.spec.Read); err != nil {
		return err
	}
	if t.order.Shuffle == spec.ShuffleFull && t.choice.Strategy == spec.ReadGather && !t.choice.Chunks { // each record is requested on its own
		t.starts = make([]uint64, g.records()+1)
		for i := range t.starts {
			t.starts[i] = uint64(i)
		}
	}
	t.bytes = make([]int64, len(t.starts)-1)
	t.forecast.Chunks = uint64(len(t.bytes))
	for i := range t.bytes {
		t.forecast.Records[t.starts[i+1]-t.starts[i]]++
	}
	return nil
}

// tally goes through the records once, and adds up requests and bytes if each chunk is read once.
func (g *generation) tally(ctx context.Context, tallies []*chunkTally) error {
	const block = 4096
	numbers, extents := make([]uint64, block), make([]catalog.Extent, block)
	total := g.records()
	for from := uint64(0); from < total; from += block {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := int(min(block, total-from))
		for i := range n {
			numbers[i] = from + uint64(i)
		}
		g.part.Numbers(numbers[:n])
		g.catalog.Extents(numbers[:n], extents[:n])
		for _, t := range tallies {
			for i, x := range extents[:n] {
				t.add(from+uint64(i), x, g)
			}
		}
	}
	for _, t := range tallies {
		t.ask(g)
	}
	return nil
}

// add adds a record to its chunk, and to the request being built if it is near enough.
func (t *chunkTally) add(rank uint64, x catalog.Extent, g *generation) {
	next := rank == t.starts[t.at+1]
	if next {
		t.at++
	}
	t.bytes[t.at] += x.SizeBytes
	if !next && x.Shard == t.shard && x.OffsetBytes-t.end <= g.mount.profile.GapBytes && t.end > t.begin {
		t.end = max(t.end, x.OffsetBytes+x.SizeBytes)
		return
	}
	t.ask(g)
	t.shard, t.begin, t.end = x.Shard, x.OffsetBytes, x.OffsetBytes+x.SizeBytes
}

// ask counts the request that was being built. Large requests are split.
func (t *chunkTally) ask(g *generation) {
	if t.shard < 0 || t.end <= t.begin || g.catalog.Shard(t.shard).Codec != nil {
		return
	}
	t.forecast.Bytes += t.end - t.begin
	t.forecast.Requests += uint64(parts(t.end-t.begin, g.mount.profile.ReadBytes))
}

func parts(n, most int64) int64 { return (n + most - 1) / most }

// dryRecords is how many records of an order a dry run of a gatherer reads, at least: its requests
// per record hardly change in an epoch.
const dryRecords = 1 << 18

// count replaces the tally's requests and bytes by those of a dry run. The tally is right if each
// chunk is read once: if its records wait in memory, which is why shards are scanned, or in a disk
// cache, whose reads a dry run would count.
func (t *chunkTally) count(ctx context.Context, e *order.Epoch, g *generation) error {
	f, o := &t.forecast, &t.order
	gathers := t.choice.Strategy == spec.ReadGather
	fits := t.choice.Strategy == spec.ReadScan && g.spec.Read == spec.ReadAuto && !t.compressed && o.Shuffle != spec.ShuffleNone
	if t.choice.Chunks || fits {
		return nil
	}
	v, err := order.NewView(e, nil, spec.Assignment{Workers: 1, Batch: o.Batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep})
	if err != nil {
		return err
	}
	seq := workerSequence{v, 0}
	n := seq.Len()
	if gathers {
		n = min(n, max(dryRecords, 4*o.SizeRecords))
	}
	x, err := t.survey.DryRun(ctx, seq, read.Subset{Number: e.Phase(), Part: e.Part()}, n, t.choice)
	if err != nil {
		return err
	}
	all := float64(seq.Len()) / float64(max(n, 1))
	f.Requests, f.Bytes = uint64(all*float64(x.Reads)), int64(all*float64(x.ReadBytes))
	f.Estimated = n < seq.Len() || x.CountedRecords > 0 || !x.Fits || g.mount.cache != nil && gathers
	return nil
}

// walk goes through the order and finds the most that waits.
func (g *generation) walk(ctx context.Context, t *chunkTally, e *order.Epoch) error {
	o := t.order
	if o.Shuffle == spec.ShuffleFull {
		return nil // nothing waits for its turn: each record is read when it is due
	}
	left := make([]uint64, len(t.bytes)) // records left of a chunk that has begun; 0: not begun, or finished
	numbers, sizes := make([]uint64, 1024), make([]int64, 1024)
	cursor := e.Cursor(0)
	memory, disk := int64(0), int64(0)
	for walked := uint64(0); walked < max(walkedRecords, walkedBuffers*o.SizeRecords); {
		n := cursor.Next(numbers)
		if err := ctx.Err(); err != nil || n == 0 {
			return err
		}
		g.catalog.Sizes(numbers[:n], sizes[:n])
		for i, record := range numbers[:n] {
			chunk, found := slices.BinarySearch(t.starts, g.part.Rank(record))
			if !found {
				chunk--
			}
			if left[chunk] == 0 {
				left[chunk] = t.starts[chunk+1] - t.starts[chunk]
				memory, disk = memory+t.bytes[chunk], disk+t.bytes[chunk]
				t.forecast.MemoryBytes, t.forecast.DiskBytes = max(t.forecast.MemoryBytes, memory), max(t.forecast.DiskBytes, disk)
			}
			memory -= sizes[i]
			if left[chunk]--; left[chunk] == 0 {
				disk -= t.bytes[chunk]
			}
		}
		walked += uint64(n)
	}
	return nil
}

// finish returns the forecast. Its estimate of mixing models the records of a buffer as chunks
// drawn at random, all of the mean size.
func (t *chunkTally) finish(g *generation) ChunkForecast {
	f, o := t.forecast, g.spec.Order
	switch {
	case o.Shuffle == spec.ShuffleNone || f.Chunks == 0:
	case o.Shuffle == spec.ShuffleFull || o.SizeRecords >= g.records():
		f.Mixing = 1
	default:
		records := float64(g.records()) / float64(f.Chunks)
		f.Mixing = 1 + records*batchRecords/(2*float64(max(o.SizeRecords, 1)))
	}
	return f
}
