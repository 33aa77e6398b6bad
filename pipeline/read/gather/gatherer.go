package gather

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Gatherer is what readers of one dataset share: memory, planners, the goroutines that copy and
// verify what has arrived, and free lists. It is safe for concurrent use.
type Gatherer struct {
	index       Index
	storage     Storage
	pool        *budget.Blocks
	beside      int64
	ask         func() bool // see Config
	verifier    format.Verifier
	meter       *meter.Meter
	ahead       profile.Ahead
	told        *window.Plan // nil: storage is not a storage.Planner
	expecter    storage.Expecter
	readTimeout time.Duration
	dry         func() bool // Config.Dry
	note        func(error)

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

// New starts a gatherer. The caller keeps ownership of what the configuration refers to.
func New(c Config) (*Gatherer, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	g := &Gatherer{
		index: c.Index, storage: c.Storage, pool: c.Memory, ahead: c.Ahead, told: c.Told, expecter: c.Expecter, verifier: c.Verifier,
		beside: c.BesideBytes, ask: c.Ask, meter: c.Meter, readTimeout: c.ReadTimeout, dry: c.Dry, note: c.Note, objectBytes: objectBytes(c.Index),
	}
	if g.ask == nil {
		g.ask = func() bool { return false }
	}
	if g.meter == nil {
		g.meter = new(meter.Meter)
	}
	if g.note == nil {
		g.note = func(error) {}
	}
	n := min(runtime.GOMAXPROCS(0), maxPlanners)
	g.planners = make(chan *planner, n)
	for range n {
		p, err := newPlanner(c.Plan, g.pool.BlockBytes, g.objectBytes)
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

func objectBytes(x Index) []int64 {
	sizes := make([]int64, x.Shards())
	for i := range sizes {
		sizes[i] = x.Shard(i).Object.SizeBytes
	}
	return sizes
}

// Open returns a reader of a sequence, whose records must all be in uncompressed shards. Opening
// costs nothing: reading starts with the calls of Read.
func (g *Gatherer) Open(seq pinned.Sequence) *Reader { return g.follow(seq, g.told.NewWalker(seq)) }

// OpenPhase is Open for records of another phase than that of Config.Told.
func (g *Gatherer) OpenPhase(seq pinned.Sequence, phase window.Subset) *Reader {
	return g.follow(seq, g.told.NewPhaseWalker(seq, phase))
}

func (g *Gatherer) follow(seq pinned.Sequence, w *window.Lookahead) *Reader {
	r := &Reader{g: g, seq: seq, walker: w, expected: newExpectation(g.expecter)}
	g.open.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers = append(g.readers, r)
	return r
}

// PlanConfig returns how reads are planned: Config.Plan, limited to a block of memory.
func (g *Gatherer) PlanConfig() plan.Config { return g.planConfig }

// Close stops reading ahead, waits for reads in progress and returns all memory to Config.Memory.
// All pinned records must have been released, and no Reader may be in use. It is idempotent.
func (g *Gatherer) Close() {
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
}

func (g *Gatherer) finishReads() {
	m := &g.meter.Working[meter.Gather]
	m.Begin(meter.Now())
	for r := g.work.next(m); r != nil; r = g.work.next(m) {
		r.finish()
		g.meter.Queued[meter.Gather].Add(-1)
	}
	m.End(meter.Now())
}

// submit submits reads whose Done calls Gatherer.meter.Reading.End.
func (g *Gatherer) submit(reads []*storage.Read) {
	g.meter.Reading.Begin(len(reads))
	g.storage.Submit(reads)
}

// waitsFor returns the stage to charge for waiting on reads: while none is with the storage, what
// is missing has arrived and is being copied or verified.
func (g *Gatherer) waitsFor() meter.Stage {
	if g.meter.Reading.Any() {
		return meter.Storage
	}
	return meter.Gather
}

var errClosed = errors.New("the reader is closed")
