package pipeline

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// takePart finds what the split leaves of the dataset, and writes into the spec
// what it left to the format.
func (d *Dataset) takePart(ctx context.Context) error {
	split := &d.spec.Order.Split
	if *split = split.Or(); *split != (spec.Split{}) && split.By == "" {
		split.By = splitBy(d.catalog.Unpacker())
	}
	var err error
	d.part, err = order.NewPart(*split, splitShards{d.catalog}, func(work []func()) { onAllCores(ctx, work) })
	if err == nil {
		err = ctx.Err() // then some of the work was left out
	}
	return err
}

// splitBy is what a split of a format keeps together unless told otherwise.
func splitBy(f unpack.Format) spec.SplitBy {
	if u, ok := f.(unpack.Unitary); ok && u.SplitByUnit() {
		return spec.SplitByUnit
	}
	return spec.SplitByRecord
}

// splitShards are a catalog's shards as a split sees them.
type splitShards struct{ *catalog.Catalog }

func (s splitShards) Shard(i int) order.Shard {
	x := s.Catalog.Shard(i)
	return order.Shard{Records: x.Records, ID: x.IDPrefix, Anywhere: x.EntryPoints == x.Records}
}

// onAllCores does all the work, unless ctx ends before.
func onAllCores(ctx context.Context, work []func()) {
	var next atomic.Int64
	var g sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(work)) {
		g.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(work)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				work[i]()
			}
		})
	}
	g.Wait()
}

// Part is what the split leaves of the dataset, nil where there is none.
func (d *Dataset) Part() *order.Part { return d.part }

// Records is T: where there is a split, the number of records that it leaves,
// which may be 0.
func (d *Dataset) Records() uint64 {
	if d.part != nil {
		return d.part.Len()
	}
	return d.catalog.Records()
}

// ChunkStarts is what order.NewEpoch takes: the first records of the chunks of
// what the split leaves.
func (d *Dataset) ChunkStarts(chunkBytes, chunkRecords uint64) []uint64 {
	return d.part.Starts(d.catalog.ChunkStarts(chunkBytes, chunkRecords))
}

// sumRecords is how many sizes are added up at a time, by one core.
const sumRecords = 1 << 18

// StreamBytes is the sum of the sizes of all records that the split leaves. The
// first call looks at each of them, which takes some nanoseconds a record.
func (d *Dataset) StreamBytes() int64 {
	d.sizes.once.Do(func() {
		if d.part == nil {
			d.sizes.sum.Store(d.catalog.StreamBytes())
			return
		}
		var work []func()
		for from := uint64(0); from < d.part.Len(); from += sumRecords {
			work = append(work, func() { d.sizes.sum.Add(d.sumSizes(from, min(from+sumRecords, d.part.Len()))) })
		}
		onAllCores(context.Background(), work)
	})
	return d.sizes.sum.Load()
}

// sumSizes adds up the sizes of the records of some ranks.
func (d *Dataset) sumSizes(from, to uint64) (sum int64) {
	const block = 4096
	numbers, sizes := make([]uint64, block), make([]int64, block)
	for from < to {
		n := min(block, to-from)
		for i := range n {
			numbers[i] = from + i
		}
		d.part.Numbers(numbers[:n])
		d.catalog.Sizes(numbers[:n], sizes[:n])
		for _, size := range sizes[:n] {
			sum += size
		}
		from += n
	}
	return sum
}
