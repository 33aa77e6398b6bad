package gather

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// maxBatchRecords limits the tables of a batch of tiny records.
const maxBatchRecords = 2048

// batch is a run of consecutive records of a sequence, one after the other in one block, in the
// order in which they are delivered.
//
//	block  ├─record from─┼─from+1─┼──── … ────┼─from+n-1─┤ unused
//	       offs[0]       offs[1]                          offs[n]
//
// It is pinned by budget.Records, by waiting calls, and once while reads are in progress; its block
// is freed when it is not pinned and the reader has dropped it. Reads complete in any order, and
// each record can be returned as soon as its own parts have arrived.
type batch struct {
	pins  budget.Pins
	block budget.Block
	size  int64 // of the block
	from  uint64
	offs  []int64
	// left counts the parts of each record that have not arrived, plus one until the record is
	// verified if records have checksums.
	left    []atomic.Int32
	pending atomic.Int32 // parts of all records
	faults  atomic.Int32 // records in failed
	dropped atomic.Bool  // by its reader: it is no longer in a run

	mu     sync.Mutex
	wake   chan struct{} // closed when nothing is pending; nil while no call waits
	failed map[int]fault // by record of the batch
}

// fault is why a record can't be returned.
type fault struct {
	err error
	// lasting means that the bytes have arrived, and are wrong.
	lasting bool
}

// init makes b an empty batch.
func (b *batch) init(m budget.Block, size int64, from uint64) {
	b.block, b.size, b.from, b.offs = m, size, from, append(b.offs[:0], 0)
	b.dropped.Store(false)
}

func (b *batch) records() int { return len(b.offs) - 1 }
func (b *batch) end() uint64  { return b.from + uint64(b.records()) }
func (b *batch) used() int64  { return b.offs[len(b.offs)-1] }

// fits reports whether a record of n bytes fits into the batch.
func (b *batch) fits(n int64) bool {
	return b.records() < maxBatchRecords && b.used()+n <= b.size
}

func (b *batch) bytes(i int) []byte {
	return b.block.Mem[b.offs[i]:b.offs[i+1]:b.offs[i+1]]
}

// ready reports whether all of a record has arrived, right or wrong.
func (b *batch) ready(i int) bool { return b.left[i].Load() == 0 }

// fault returns the fault of record i, which must be ready, if it has one.
func (b *batch) fault(i int) (fault, bool) {
	if b.faults.Load() == 0 {
		return fault{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	x, ok := b.failed[i]
	return x, ok
}

func (b *batch) fail(i int, x fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		b.failed = map[int]fault{}
	}
	if _, ok := b.failed[i]; !ok {
		b.failed[i] = x
		b.faults.Add(1)
	}
}

// forgive removes a fault before the record is read once more.
func (b *batch) forgive(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failed, i)
	b.faults.Add(-1)
}

// expect notes that n more parts will arrive. It is called between begin and begun, and while the
// batch is complete.
func (b *batch) expect(i int, n int32, checked bool) {
	left := n
	if checked {
		left++
	}
	b.left[i].Store(left)
	b.pending.Add(n)
}

// counts allocates the counters of the parts of each record.
func (b *batch) counts() {
	n := b.records()
	if cap(b.left) < n {
		b.left = make([]atomic.Int32, n, n*5/4)
	}
	b.left = b.left[:n]
}

// begin holds the batch while parts are expected; begun ends that.
func (b *batch) begin() {
	b.pins.Add(1)
	b.pending.Add(1)
}

func (b *batch) begun() { b.down() }

// came notes that a part of record i has arrived, with read r. The batch may be freed by it.
func (b *batch) came(i int, r *read) {
	verifier := r.stretch.g.o.Verifier
	if verifier == nil {
		b.left[i].Add(-1)
	} else if b.left[i].Add(-1) == 1 {
		b.check(i, verifier, r)
	}
	b.down()
}

// check verifies a record when its last part has arrived, with read r, if there was one. A fault is
// visible before the record is ready.
func (b *batch) check(i int, verifier format.Verifier, r *read) {
	if _, failed := b.fault(i); !failed {
		if err := verifier.Verify(b.bytes(i)); err != nil {
			b.fail(i, fault{err, true})
			if r != nil {
				r.stretch.g.o.Note(fmt.Errorf("%s: %w", r.request.Object.Path, err))
			}
		}
	}
	b.left[i].Add(-1)
}

// wanted reports whether reads for the batch should begin, while some are pending: not if its
// reader has dropped it and no call waits for it. A waiting call has pinned it, in addition to the
// reads, before it was dropped, so false is final.
func (b *batch) wanted() bool { return !b.dropped.Load() || b.pins.Count() > 1 }

// down counts down one part, and wakes waiting calls after the last one.
func (b *batch) down() {
	if b.pending.Add(-1) > 0 {
		return
	}
	b.mu.Lock()
	if b.wake != nil {
		close(b.wake)
		b.wake = nil
	}
	b.mu.Unlock()
	b.pins.Unpin()
}

// wait returns a channel that is closed when everything has arrived, nil if it has.
func (b *batch) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending.Load() == 0 {
		return nil
	}
	if b.wake == nil {
		b.wake = make(chan struct{})
	}
	return b.wake
}

// lendable returns how many of records i … i+n-1 can be returned.
func (b *batch) lendable(i, n int) int {
	n = min(n, b.records()-i)
	for j := range n {
		if !b.ready(i + j) {
			return j
		}
		if b.faults.Load() > 0 {
			if _, bad := b.fault(i + j); bad {
				return j
			}
		}
	}
	return n
}

// take returns memory for n bytes. A batch that a reader waits for always gets it: other readers
// drop what they have read, beginning with those that have been idle longest.
func (g *Gatherer) take(r *Reader, n int64, u budget.Urgency) (budget.Block, error) {
	b, err := g.pool.Take(n, false)
	if err != budget.ErrNoRoom {
		return b, err
	}
	if g.o.Ask() {
		if b, err = g.pool.Take(n, false); err != budget.ErrNoRoom {
			return b, err
		}
	}
	g.sweep()
	r.dropOthers()
	if u == budget.Demand {
		r.dropPassed()
	}
	g.reclaim(r, func() bool { return g.pool.Room(n) }, u)
	return g.pool.Take(n, u == budget.Demand)
}

// idleCalls is after how many calls of others a reader's memory may be used to read ahead for them.
const idleCalls = 256

// reclaim makes other readers drop what they hold, until that is enough: first what they do not need
// now and then, for a reader that waits, anything.
func (g *Gatherer) reclaim(r *Reader, enough func() bool, u budget.Urgency) {
	g.mu.Lock()
	others := slices.Clone(g.readers)
	g.mu.Unlock()
	slices.SortFunc(others, func(a, b *Reader) int { return cmp.Compare(a.called.Load(), b.called.Load()) })
	now := g.calls.Load()
	for _, all := range [...]bool{false, true} {
		if all && u != budget.Demand {
			return
		}
		for _, o := range others {
			if enough() {
				return
			}
			idle := o.called.Load()+idleCalls < now
			if o == r || u != budget.Demand && !idle || !o.mu.TryLock() {
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

func (g *Gatherer) giveBlock(b budget.Block) {
	if err := g.pool.Give(b); err != nil {
		g.o.Note(err)
	}
}

// newBatch returns an empty batch with the given memory.
func (g *Gatherer) newBatch(m budget.Block, from uint64) *batch {
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

// drop takes a batch that is no longer in a run. Reads that are for no other batch and have not
// begun are cancelled, and its memory is freed when it is no longer pinned.
func (g *Gatherer) drop(b *batch) {
	b.dropped.Store(true)
	if b.pins.Kill() {
		g.recycle(b)
		return
	}
	g.mu.Lock()
	g.leaving = append(g.leaving, b)
	g.mu.Unlock()
}

// sweep frees dropped batches that are no longer pinned.
func (g *Gatherer) sweep() {
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
func (g *Gatherer) recycle(b *batch) {
	g.giveBlock(b.block)
	b.block, b.failed = budget.Block{}, nil
	b.faults.Store(0)
	b.pins.Reset(0)
	g.mu.Lock()
	g.batches = append(g.batches, b)
	g.mu.Unlock()
}

func (g *Gatherer) newStretch() *stretch {
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

func (g *Gatherer) freeStretch(st *stretch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stretches = append(g.stretches, st)
}
