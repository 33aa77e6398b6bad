package pipeline

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

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
