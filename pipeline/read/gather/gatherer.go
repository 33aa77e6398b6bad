package gather

import (
	"cmp"
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
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Gatherer is what readers of one dataset share: memory, planners, the goroutines that copy and
// verify what has arrived, and free lists. It is safe for concurrent use.
type Gatherer struct {
	o     *options.Options
	pool  *budget.Blocks // of records of all readers together
	ahead storage.Ahead
	near  uint64       // see window.Near
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

// New starts a gatherer. told tells the storage what will be read, and its fields must be set; nil
// if the storage takes no hints.
func New(o *options.Options, told *window.Plan) (*Gatherer, error) {
	reads := o.Profile
	if o.Choice.Chunks {
		reads = storage.DefaultProfile(storage.KindVirtual) // planned chunks are read from a local disk
	}
	g := &Gatherer{o: o, pool: budget.NewBlocks(o.Survey.Limits.CacheBytes), ahead: reads.Ahead, told: told, objectBytes: objectBytes(o.Index)}
	g.pool.Released = o.Released
	h := &o.Survey.Held
	g.near = window.Near(h.Bytes / int64(max(h.Records, 1)))
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
func planConfig(p storage.Profile) plan.Config {
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
func (g *Gatherer) Open(seq chunkmap.Sequence) *Reader { return g.follow(seq, g.told.NewWalker(seq)) }

// OpenPhase is Open for records of another phase than that of New's told.
func (g *Gatherer) OpenPhase(seq chunkmap.Sequence, phase window.Subset) *Reader {
	return g.follow(seq, g.told.NewPhaseWalker(seq, phase))
}

func (g *Gatherer) follow(seq chunkmap.Sequence, w *window.Lookahead) *Reader {
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

var _ budget.Member = (*Gatherer)(nil)

// Allow implements budget.Member: the pool gets what Options.BesideBytes leaves, but at least
// half.
func (g *Gatherer) Allow(bytes int64) {
	g.pool.Allow(min(max(bytes-g.o.BesideBytes(), bytes/2), g.pool.MostBytes()))
}

// Held implements budget.Member.
func (g *Gatherer) Held() int64 { return g.pool.Held() + g.o.BesideBytes() }

// Lent implements budget.Member.
func (g *Gatherer) Lent() int64 { return int64(g.counts.bytesOut.Load()) }

// Readers implements budget.Member.
func (g *Gatherer) Readers() int64 { return g.open.Load() }

// Shrink implements budget.Member: readers drop what they do not need now and then all they have,
// beginning with those that have been idle longest. Readers whose lock is held are skipped.
func (g *Gatherer) Shrink() {
	g.sweep()
	g.mu.Lock()
	readers := slices.Clone(g.readers)
	g.mu.Unlock()
	slices.SortFunc(readers, func(a, b *Reader) int { return cmp.Compare(a.called.Load(), b.called.Load()) })
	for _, drop := range [...]func(*Reader){(*Reader).giveUp, (*Reader).dropAll} {
		for _, r := range readers {
			if err := g.pool.Trim(); err != nil {
				g.o.Note(err)
			}
			if g.pool.Held() <= g.pool.BudgetBytes() {
				return
			}
			if r.mu.TryLock() {
				drop(r)
				r.mu.Unlock()
			}
		}
	}
	if err := g.pool.Trim(); err != nil {
		g.o.Note(err)
	}
}

// ShrinkDisk implements budget.Member: nothing is kept on a disk.
func (g *Gatherer) ShrinkDisk() {}

// Stats is a snapshot. Counters only grow.
type Stats struct {
	RecordsOut, BytesOut uint64 // returned by Read
	Hits                 uint64 // records that were in memory when asked for
	Waits                uint64 // records that a reader had to wait for
	WaitNanos            uint64
	Reads, BytesRead     uint64 // completed
	ReadsInFlight        int64
	// ReadsCancelled and BytesCancelled count what was requested ahead of readers that then seeked
	// away or closed, and had not begun.
	ReadsCancelled, BytesCancelled uint64
	// DroppedBytes counts records that were read and not used: their memory was needed for others
	// first, or their reader had gone elsewhere.
	DroppedBytes uint64
	HeldBytes    int64 // in memory, now
}

// counters are the counted parts of Stats.
type counters struct {
	recordsOut, bytesOut, hits, waits, waitNanos     atomic.Uint64
	reads, bytesRead, readsCancelled, bytesCancelled atomic.Uint64
	dropped                                          atomic.Uint64
	underWay                                         atomic.Int64
}

// Stats returns a snapshot. It first frees dropped batches that are no longer pinned.
func (g *Gatherer) Stats() Stats {
	g.sweep()
	n := &g.counts
	return Stats{
		RecordsOut: n.recordsOut.Load(), BytesOut: n.bytesOut.Load(),
		Hits: n.hits.Load(), Waits: n.waits.Load(), WaitNanos: n.waitNanos.Load(),
		Reads: n.reads.Load(), BytesRead: n.bytesRead.Load(), ReadsInFlight: n.underWay.Load(),
		ReadsCancelled: n.readsCancelled.Load(), BytesCancelled: n.bytesCancelled.Load(),
		DroppedBytes: n.dropped.Load(), HeldBytes: g.pool.Held(),
	}
}
