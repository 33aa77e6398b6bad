package fetch

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// gatherer is what the readers of a fetcher share that reads exactly the records
// that come next: memory, planners, and what has been used before.
type gatherer struct {
	f           *Fetcher
	objectBytes []int64
	pool        *budget.Blocks
	planners    chan *planner
	work        readQueue

	reads    atomic.Uint64
	underWay atomic.Int64  // reads
	dropped  atomic.Uint64 // bytes of batches that nobody had come to
	calls    atomic.Uint64 // of Lend, by all readers

	mu        sync.Mutex
	readers   []*gatherReader
	batches   []*batch   // free
	leaving   []*batch   // dropped by their readers, and still pinned
	stretches []*stretch // free
}

// maxPlanners is how many stretches are planned at a time.
const maxPlanners = 4

func newGatherer(f *Fetcher) (*gatherer, error) {
	g := &gatherer{f: f, pool: budget.NewBlocks(f.limits.CacheBytes), objectBytes: f.objectBytes()}
	n := min(runtime.GOMAXPROCS(0), maxPlanners)
	g.planners = make(chan *planner, n)
	for range n {
		p, err := newPlanner(f.config, g.pool.BlockBytes, g.objectBytes)
		if err != nil {
			return nil, err
		}
		g.planners <- p
	}
	g.work.init()
	for range runtime.GOMAXPROCS(0) {
		f.running.Go(g.finishReads)
	}
	return g, nil
}

func (f *Fetcher) objectBytes() []int64 {
	sizes := make([]int64, f.index.Shards())
	for i := range sizes {
		sizes[i] = f.index.Shard(i).Object.SizeBytes
	}
	return sizes
}

func (g *gatherer) finishReads() {
	m := &g.f.meter.Working[meter.Gather]
	m.Begin(meter.Now())
	for r := g.work.next(m); r != nil; r = g.work.next(m) {
		r.finish()
		g.f.meter.Queued[meter.Gather].Add(-1)
	}
	m.End(meter.Now())
}

// note keeps an error for status.
func (g *gatherer) note(err error) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	g.f.failures.add(err)
}

func (g *gatherer) giveBlock(b budget.Block) {
	if err := g.pool.Give(b); err != nil {
		g.note(err)
	}
}

// newBatch makes an empty batch of memory.
func (g *gatherer) newBatch(m budget.Block, from uint64) *batch {
	g.mu.Lock()
	var b *batch
	if n := len(g.batches); n > 0 {
		b, g.batches = g.batches[n-1], g.batches[:n-1]
	}
	g.mu.Unlock()
	if b == nil {
		b = new(batch)
	}
	b.init(m, int64(len(m.Mem)), from)
	return b
}

// drop takes a batch that is in no run any more. Reads that are for no other
// batch and have not begun are called off, and its memory is free as soon as
// nobody pins it.
func (g *gatherer) drop(b *batch) {
	b.dropped.Store(true)
	if b.pins.Kill() {
		g.recycle(b)
		return
	}
	g.mu.Lock()
	g.leaving = append(g.leaving, b)
	g.mu.Unlock()
}

// sweep frees what was dropped and is not pinned any more.
func (g *gatherer) sweep() {
	g.mu.Lock()
	var gone []*batch
	g.leaving = slices.DeleteFunc(g.leaving, func(b *batch) bool {
		if !b.pins.Kill() {
			return false
		}
		gone = append(gone, b)
		return true
	})
	g.mu.Unlock()
	for _, b := range gone {
		g.recycle(b)
	}
}

// recycle frees a dead batch.
func (g *gatherer) recycle(b *batch) {
	g.giveBlock(b.block)
	b.block, b.failed = budget.Block{}, nil
	b.faults.Store(0)
	b.pins.Reset(0)
	g.mu.Lock()
	g.batches = append(g.batches, b)
	g.mu.Unlock()
}

func (g *gatherer) newStretch() *stretch {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.stretches)
	if n == 0 {
		return &stretch{g: g}
	}
	st := g.stretches[n-1]
	g.stretches = g.stretches[:n-1]
	return st
}

func (g *gatherer) freeStretch(st *stretch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stretches = append(g.stretches, st)
}

// take finds memory for n bytes. A batch that a reader waits for gets it in any
// case: others give up what they have read, those first that have not been read
// for the longest.
func (g *gatherer) take(r *gatherReader, n int64, u budget.Urgency) (budget.Block, error) {
	b, err := g.pool.Take(n, false)
	if err != budget.ErrNoRoom {
		return b, err
	}
	g.sweep()
	g.reclaim(r, n, u)
	return g.pool.Take(n, u == budget.Demanded)
}

// idleCalls is after how many calls of others a reader's memory may be used to
// read ahead for them.
const idleCalls = 256

// reclaim has other readers drop what they hold, until there is room for n
// bytes: first what they do not need now, and then, for one that waits, anything.
func (g *gatherer) reclaim(r *gatherReader, n int64, u budget.Urgency) {
	r.dropOthers()
	if u == budget.Demanded {
		r.dropPassed()
	}
	g.mu.Lock()
	others := slices.Clone(g.readers)
	g.mu.Unlock()
	slices.SortFunc(others, func(a, b *gatherReader) int { return cmp.Compare(a.called.Load(), b.called.Load()) })
	now := g.calls.Load()
	for _, all := range [...]bool{false, true} {
		if all && u != budget.Demanded {
			return
		}
		for _, o := range others {
			if g.pool.Room(n) {
				return
			}
			idle := o.called.Load()+idleCalls < now
			if o == r || u != budget.Demanded && !idle || !o.mu.TryLock() {
				continue
			}
			if idle || all {
				o.dropAll()
			} else {
				o.giveUp()
			}
			o.mu.Unlock()
		}
	}
}

// close frees everything. No read is under way, and no reader in use.
func (g *gatherer) close() error {
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

// readQueue hands reads whose bytes have come to those who copy and check them.
// It needs no bound of its own: it holds no more than are under way, each of
// which has its memory.
type readQueue struct {
	mu          sync.Mutex
	some        sync.Cond
	first, last *gatherRead
	closed      bool
}

func (q *readQueue) init() { q.some.L = &q.mu }

// add never blocks; it returns false after close.
func (q *readQueue) add(r *gatherRead) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	r.next = nil
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
	q.some.Signal()
	return true
}

// next waits for a read, and gives nil when the queue is closed and empty. The
// caller is at work, but for the wait.
func (q *readQueue) next(work *meter.Level) *gatherRead {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.first == nil && !q.closed {
		work.End(meter.Now())
		q.some.Wait()
		work.Begin(meter.Now())
	}
	r := q.first
	if r != nil {
		q.first = r.next
	}
	return r
}

func (q *readQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.some.Broadcast()
}

var errGatherClosed = errors.New("the reader is closed")
