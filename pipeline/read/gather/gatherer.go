package gather

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Gatherer is what readers of one dataset share: memory, planners, the goroutines that copy and
// verify what has arrived, and free lists. It is safe for concurrent use.
type Gatherer struct {
	o     *options.Options
	pool  *budget.Blocks // of records of all readers together
	ahead profile.Ahead
	told  *window.Plan // nil: the storage takes no hints

	objectBytes []int64
	planConfig  plan.Config // of the planners
	planners    chan *planner
	work        readQueue
	running     sync.WaitGroup // reads, and the goroutines that finish them
	open        atomic.Int64   // readers
	calls       atomic.Uint64  // of Read, by all readers
	counts      counters

	mu        sync.Mutex
	readers   []*Reader
	batches   []*batch   // free
	leaving   []*batch   // dropped by their readers, and still pinned
	stretches []*stretch // free
}

// maxPlanners is how many stretches are planned concurrently, at most.
const maxPlanners = 4

// New starts a gatherer. told tells the storage what will be read, and its fields must be set; nil if
// the storage takes no hints.
func New(o *options.Options, told *window.Plan) (*Gatherer, error) {
	reads := o.Profile
	if o.Choice.Chunks {
		reads = profile.Defaults(profile.KindVirtual) // planned chunks are read from a local disk
	}
	g := &Gatherer{o: o, pool: budget.NewBlocks(o.Survey.Limits.CacheBytes), ahead: reads.Ahead, told: told, objectBytes: objectBytes(o.Index)}
	g.pool.Released = o.Released
	n := min(runtime.GOMAXPROCS(0), maxPlanners)
	g.planners = make(chan *planner, n)
	for range n {
		p, err := newPlanner(planConfig(reads), g.pool.BlockBytes, g.objectBytes)
		if err != nil {
			return nil, err
		}
		g.planConfig = p.planner.Config()
		g.planners <- p
	}
	g.work.init()
	for range runtime.GOMAXPROCS(0) {
		g.running.Go(g.finishReads)
	}
	return g, nil
}

// planConfig returns the read planner's configuration for a storage with profile p.
func planConfig(p profile.Profile) plan.Config {
	p = p.Or()
	if p.Apart {
		return plan.Config{MaxReadBytes: math.MaxInt64, AlignBytes: 1, MaxVectors: 1}
	}
	return plan.Config{MergeGapBytes: p.GapBytes, MaxReadBytes: p.ReadBytes, AlignBytes: p.AlignBytes}
}

func objectBytes(x chunkmap.Index) []int64 {
	sizes := make([]int64, x.Shards())
	for i := range sizes {
		sizes[i] = x.Shard(i).Object.SizeBytes
	}
	return sizes
}

// Open returns a reader of a sequence, whose records must all be in uncompressed shards. Opening
// costs nothing: reading starts with the calls of Read.
func (g *Gatherer) Open(seq pinned.Sequence) *Reader { return g.follow(seq, g.told.NewWalker(seq)) }

// OpenPhase is Open for records of another phase than that of New's told.
func (g *Gatherer) OpenPhase(seq pinned.Sequence, phase window.Subset) *Reader {
	return g.follow(seq, g.told.NewPhaseWalker(seq, phase))
}

func (g *Gatherer) follow(seq pinned.Sequence, w *window.Lookahead) *Reader {
	r := &Reader{g: g, seq: seq, walker: w}
	g.open.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers = append(g.readers, r)
	return r
}

// PlanConfig returns how reads are planned: as suits the storage, limited to a block of memory.
func (g *Gatherer) PlanConfig() plan.Config { return g.planConfig }

// Close stops reading ahead, waits for reads in progress and frees the memory. All pinned records
// must have been released, and no Reader may be in use. It is idempotent.
func (g *Gatherer) Close() error {
	g.work.close()
	g.running.Wait()
	g.mu.Lock()
	readers := slices.Clone(g.readers)
	g.mu.Unlock()
	for _, r := range readers {
		r.mu.Lock()
		r.dropAll()
		r.mu.Unlock()
	}
	g.sweep()
	return g.pool.Close()
}

// BlockBytes returns the size of a block of memory, which a batch takes.
func (g *Gatherer) BlockBytes() int64 { return g.pool.BlockBytes }

func (g *Gatherer) finishReads() {
	m := &g.o.Meter.Working[meter.Gather]
	m.Begin(meter.Now())
	for r := g.work.next(m); r != nil; r = g.work.next(m) {
		r.finish()
		g.o.Meter.Queued[meter.Gather].Add(-1)
	}
	m.End(meter.Now())
}

// waitsFor returns the stage to charge for waiting on reads: while none is with the storage, what
// is missing has arrived and is being copied or verified.
func (g *Gatherer) waitsFor() meter.Stage {
	if g.o.Meter.Reading.Any() {
		return meter.Storage
	}
	return meter.Gather
}

var errClosed = errors.New("the reader is closed")
