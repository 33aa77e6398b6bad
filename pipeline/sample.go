package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

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
