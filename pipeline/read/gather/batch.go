package gather

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// maxBatchRecords bounds the tables of a batch of tiny records.
const maxBatchRecords = 2048

// batch is a run of consecutive records of a sequence, one after the other in
// one block, in the order in which they go out.
//
//	block  ├─record from─┼─from+1─┼──── … ────┼─from+n-1─┤ unused
//	       offs[0]       offs[1]                          offs[n]
//
// It is pinned by loans, by those who wait, and once while reads are
// under way; its block is given back when nobody pins it and the reader has
// dropped it. Reads come in any order, and each record can be lent as soon as
// its own have come.
type batch struct {
	pins  budget.Pins
	block budget.Block
	size  int64 // of the block
	from  uint64
	offs  []int64
	// left are the parts of each record that have not come; where records have
	// checksums, one more until that was looked at.
	left    []atomic.Int32
	pending atomic.Int32 // parts of all records
	faults  atomic.Int32 // records in failed
	dropped atomic.Bool  // by its reader: it is in no run any more

	mu     sync.Mutex
	wake   chan struct{} // closed when nothing is pending; nil while nobody waits
	failed map[int]fault // by record of the batch
}

// fault is why a record can't be lent.
type fault struct {
	err error
	// lasting says that the bytes have come, and are wrong.
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

// fits says whether a record of n bytes still does.
func (b *batch) fits(n int64) bool {
	return b.records() < maxBatchRecords && b.used()+n <= b.size
}

func (b *batch) bytes(i int) []byte {
	return b.block.Mem[b.offs[i]:b.offs[i+1]:b.offs[i+1]]
}

// ready says that all of a record has come, right or wrong.
func (b *batch) ready(i int) bool { return b.left[i].Load() == 0 }

// fault is why record i, which is ready, can't be lent, if so.
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

// forgive takes a fault back, before the record is read once more.
func (b *batch) forgive(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failed, i)
	b.faults.Add(-1)
}

// expect notes that n parts more are to come. It is called between begin and
// begun, and while the batch is complete.
func (b *batch) expect(i int, n int32, checked bool) {
	left := n
	if checked {
		left++
	}
	b.left[i].Store(left)
	b.pending.Add(n)
}

// counts makes what counts the parts of each record.
func (b *batch) counts() {
	n := b.records()
	if cap(b.left) < n {
		b.left = make([]atomic.Int32, n, n*5/4)
	}
	b.left = b.left[:n]
}

// begin holds the batch while parts are expected; begun lets go.
func (b *batch) begin() {
	b.pins.Add(1)
	b.pending.Add(1)
}

func (b *batch) begun() { b.down() }

// came notes that a part of record i has, with read r. The batch may be gone after
// it.
func (b *batch) came(i int, r *read) {
	verifier := r.stretch.g.verifier
	if verifier == nil {
		b.left[i].Add(-1)
	} else if b.left[i].Add(-1) == 1 {
		b.check(i, verifier, r)
	}
	b.down()
}

// check looks at a record's checksum when its last part has come, with read r, if
// there was one. That it is wrong is known to all before anybody is told.
func (b *batch) check(i int, verifier format.Verifier, r *read) {
	if _, failed := b.fault(i); !failed {
		if err := verifier.Verify(b.bytes(i)); err != nil {
			b.fail(i, fault{err, true})
			if r != nil {
				r.stretch.g.note(fmt.Errorf("%s: %w", r.request.Object.Path, err))
			}
		}
	}
	b.left[i].Add(-1)
}

// wanted says whether reads for the batch are to be begun, while some are
// pending: not when its reader has dropped it and nobody waits for it. Whoever
// waits has pinned it, beside the reads, before it was dropped, so a no is for
// good.
func (b *batch) wanted() bool { return !b.dropped.Load() || b.pins.Count() > 1 }

// down counts one part off, and tells those who wait when it was the last.
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

// wait gives a channel that is closed when all has come, nil if it has.
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

// lendable is how many of records i … i+n-1 can be lent.
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
