package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// takePart finds what the spec's epoch orders. If the split does not say what to keep together, it
// writes the format's default into the spec.
func (g *generation) takePart(ctx context.Context) (err error) {
	split, sample := &g.spec.Order.Split, &g.spec.Order.Sample
	if *split = split.Or(); *split != (spec.Split{}) && split.By == "" {
		split.By = splitBy(g.catalog.Unpacker())
	}
	*sample = sample.Or()
	g.selections = newCache[uint64, *selection](keptSelections)
	g.selection, err = g.selected(ctx, g.spec.Epoch)
	if err != nil {
		return err
	}
	if g.mixing != nil {
		g.mixing.mixture.Part = g.part
	}
	return g.checkSelected()
}

// splitBy is what a split keeps together by default in a format.
func splitBy(f format.Format) spec.SplitBy {
	if u, ok := f.(format.Unitary); ok && u.SplitByUnit() {
		return spec.SplitByUnit
	}
	return spec.SplitByRecord
}

// splitShards presents a catalog's shards to a split.
type splitShards struct {
	*catalog.Catalog
	kept func(path string) []uint64 // records of a shard; nil: no shard leaves any out
}

// Kept implements order.Keeper.
func (s splitShards) Kept(i int) []uint64 {
	if s.kept == nil {
		return nil
	}
	return s.kept(s.Catalog.Shard(i).Object.Path)
}

func (s splitShards) Shard(i int) order.Shard {
	x := s.Catalog.Shard(i)
	return order.Shard{Records: x.Records, ID: x.IDPrefix, Anywhere: x.EntryPoints == x.Records}
}

// onAllCores does all the work, unless ctx ends first.
func onAllCores(ctx context.Context, work []func()) {
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(work)) {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(work)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				work[i]()
			}
		})
	}
	running.Wait()
}

// records is Dataset.Records.
func (g *generation) records() uint64 { return g.recordsOf(g.selection) }

func (g *generation) recordsOf(s *selection) uint64 {
	if g.mixing != nil {
		return g.mixing.length
	}
	return g.distinct(s)
}

// chunks is the number of chunks that the order permutes.
func (g *generation) chunks() int { return len(g.starts) - 1 }

// chunkStarts is Dataset.ChunkStarts.
func (g *generation) chunkStarts(chunkBytes, chunkRecords uint64) []uint64 {
	return g.part.Starts(g.catalog.ChunkStarts(chunkBytes, chunkRecords))
}

// sumRecords is how many sizes one core adds up at a time.
const sumRecords = 1 << 18

// streamBytes is Dataset.StreamBytes.
func (g *generation) streamBytes() int64 { return g.bytesOf(g.selection) }

// bytesOf is the total size of selected records. The first call visits each of them.
func (g *generation) bytesOf(s *selection) int64 {
	s.sizes.once.Do(func() {
		if row := g.catalog.RowBytes(); row > 0 {
			s.sizes.sum.Store(int64(g.distinct(s)) * row)
			return
		}
		if s.part == nil {
			s.sizes.sum.Store(g.catalog.StreamBytes())
			return
		}
		var work []func()
		for from := uint64(0); from < s.part.Len(); from += sumRecords {
			work = append(work, func() { s.sizes.sum.Add(g.sumSizes(s.part, from, min(from+sumRecords, s.part.Len()))) })
		}
		onAllCores(context.Background(), work)
	})
	return s.sizes.sum.Load()
}

// sumSizes adds up the sizes of the records with ranks [from, to) of a part.
func (g *generation) sumSizes(part *order.Part, from, to uint64) (sum int64) {
	const block = 4096
	numbers, sizes := make([]uint64, block), make([]int64, block)
	for from < to {
		n := min(block, to-from)
		for i := range n {
			numbers[i] = from + i
		}
		part.Numbers(numbers[:n])
		g.catalog.Sizes(numbers[:n], sizes[:n])
		for _, size := range sizes[:n] {
			sum += size
		}
		from += n
	}
	return sum
}

// selection is what an epoch orders: the records of the dataset that split and sample select, and
// their chunks. Without a sample it is the same for all epochs.
type selection struct {
	part   *order.Part // nil means all records
	starts []uint64    // of the chunks
	sizes  struct {    // see bytesOf
		once sync.Once
		sum  atomic.Int64
	}
}

const (
	// keptSelections is how many phases of a sample are cached besides those of epochs in use: the
	// one being read, the next, and one for other queries.
	keptSelections = 3
	// keptPartBytes is about what the parts of cached sets may take together.
	keptPartBytes = 256 << 20
)

// sampled reports whether epochs order different records.
func (g *generation) sampled() bool { return g.spec.Order.Sample != spec.Subsample{} }

// selected returns what an epoch orders. It takes some nanoseconds for each record of the dataset,
// on all cores, unless the phase is cached.
func (g *generation) selected(ctx context.Context, epoch uint64) (*selection, error) {
	return g.selectedBy(epoch, func(work []func()) error {
		onAllCores(ctx, work)
		return ctx.Err() // some of the work was then skipped
	})
}

var errStopped = errors.New("the dataset is closed")

// selectedAhead is selected for an epoch that is not needed yet: on one core, as long as goOn
// returns true.
func (g *generation) selectedAhead(epoch uint64, goOn func() bool) (*selection, error) {
	return g.selectedBy(epoch, func(work []func()) error {
		for _, w := range work {
			if !goOn() {
				return errStopped
			}
			w()
		}
		return nil
	})
}

func (g *generation) selectedBy(epoch uint64, run func(work []func()) error) (*selection, error) {
	o := g.spec.Order
	return g.selections.get(o.Sample.Phase(epoch), func() (*selection, error) {
		var stopped error
		part, err := order.NewPart(o, epoch, splitShards{g.catalog, g.mount.kept()}, func(work []func()) { stopped = run(work) })
		if err := errors.Join(err, stopped); err != nil {
			return nil, err
		}
		return &selection{part: part, starts: part.Starts(g.chunksOfAll(o))}, nil
	})
}

// chunksOfAll are the chunks of the whole dataset, which are kept if epochs order different
// records.
func (g *generation) chunksOfAll(o spec.Order) []uint64 {
	if !g.sampled() {
		return g.catalog.ChunkStarts(o.ChunkBytes, o.ChunkRecords)
	}
	g.allOnce.Do(func() { g.allStarts = g.catalog.ChunkStarts(o.ChunkBytes, o.ChunkRecords) })
	return g.allStarts
}

// keptSets is how many sets are cached: with a sample, each may hold a part.
func (g *generation) keptSets() int {
	if !g.sampled() {
		return keptSets
	}
	part := max(g.catalog.Records()/6, 1)
	return int(min(max(keptPartBytes/part, keptSelections), keptSets))
}

// epochRecords is Dataset.EpochRecords.
func (g *generation) epochRecords(ctx context.Context, epoch uint64) (uint64, error) {
	if !g.sampled() {
		return g.records(), nil
	}
	s, err := g.selected(ctx, epoch)
	if err != nil {
		return 0, err
	}
	return s.part.Len(), nil
}

const (
	// maxEpochRecords bounds an epoch. Laying one out, which is needed for the size of any of its
	// files, takes sweepNanos of one core for each record: 46 minutes for this many.
	maxEpochRecords = 1 << 36
	// longEpochRecords is the length from which on the user is warned about that time.
	longEpochRecords = 1 << 31
	sweepNanos       = 40
)

// laysOutIn estimates how long one core takes to lay out an epoch.
func laysOutIn(records uint64) time.Duration {
	return time.Duration(min(records, 1<<56) * sweepNanos).Round(time.Second)
}

// maxSelected bounds the records that a split or a sample chooses from: each takes a bit.
const maxSelected = maxEpochRecords << 2

// checkLength returns an error for an epoch that is too long to be laid out, before anything is
// computed that grows with its length. If a split or sample selects records, checkSelected decides.
func (g *generation) checkLength() error {
	switch {
	case g.mixing != nil:
		return g.checkLengthOf(g.mixing.length, "give a shorter --mix-length, or more even weights")
	case g.selects():
		return checkWhole(g.catalog.Records(), g.fewer()+" make it smaller")
	}
	return g.checkLengthOf(g.catalog.Records(), g.fewer()+selecting)
}

// checkSelected is checkLength for the selected records.
func (g *generation) checkSelected() error {
	if g.mixing != nil || !g.selects() {
		return nil // already checked
	}
	return g.checkLengthOf(g.distinct(g.selection), g.fewer()+selecting)
}

// selects reports whether a split or a sample selects some of the records.
func (g *generation) selects() bool {
	o := &g.spec.Order
	return o.Split.Or() != (spec.Split{}) || o.Sample.Or().Of > 1
}

// selecting lists what helps, besides fewer, if an epoch is too long.
const selecting = ", a --split, or --sample 1/N make it shorter"

// fewer names what reduces the number of records of a dataset.
func (g *generation) fewer() string {
	switch {
	case g.spec.Format.Name == "zarr":
		return "a larger --crop or --stride, a --select"
	case g.spec.Format.Name == "fixed":
		return "a larger --record-bytes or --stride-bytes, fewer shards"
	}
	return "larger records, fewer shards"
}

// checkWhole returns an error for a dataset that is too large to select from.
func checkWhole(n uint64, flags string) error {
	if n <= maxSelected {
		return nil
	}
	return fmt.Errorf("the dataset has %s records, and a --split or --sample chooses from %d at most: %s", humanize.Comma(int64(min(n, 1<<62))), uint64(maxSelected), flags)
}

func (g *generation) checkLengthOf(n uint64, flags string) error {
	most := cmp.Or(g.mount.options.maxRecords, maxEpochRecords)
	switch {
	case n > most:
		return fmt.Errorf("an epoch has a length of %d (%s) records, which would take %s to lay out on one core: at most %d are supported: %s",
			n, humanize.Comma(int64(min(n, 1<<62))), laysOutIn(n), most, flags)
	case n > longEpochRecords:
		g.mount.log.Warn("the epoch is long: until it is laid out, the sizes of its files are unknown, and programs that ask for them wait", "records", n, "seconds_of_a_core", laysOutIn(n).Seconds(), "help", flags)
	}
	return nil
}
