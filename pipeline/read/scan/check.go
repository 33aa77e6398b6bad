package scan

import (
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// checkQueue passes loads whose bytes have arrived to the goroutines that verify their checksums.
// It holds at most all loads, each of which has its memory, so it needs no limit of its own.
type checkQueue struct {
	mu     sync.Mutex
	some   sync.Cond
	loads  []*load
	closed bool
}

func (q *checkQueue) init() { q.some.L = &q.mu }

// add never blocks; it returns false after close.
func (q *checkQueue) add(ld *load) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.loads = append(q.loads, ld)
	q.some.Signal()
	return true
}

// next waits for a load, and returns nil when the queue is closed and empty. The caller counts as
// working except while it waits.
func (q *checkQueue) next(work *meter.Level) *load {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.loads) == 0 && !q.closed {
		work.End(meter.Now())
		q.some.Wait()
		work.Begin(meter.Now())
	}
	if len(q.loads) == 0 {
		return nil
	}
	ld := q.loads[0]
	q.loads = append(q.loads[:0], q.loads[1:]...)
	return ld
}

func (q *checkQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.some.Broadcast()
}

func (sc *Scanner) checkRecords() {
	m := &sc.o.Meter.Working[meter.Gather]
	m.Begin(meter.Now())
	defer func() { m.End(meter.Now()) }()
	for ld := sc.checks.next(m); ld != nil; ld = sc.checks.next(m) {
		sc.checkAndFinish(ld)
		sc.running.Done()
	}
}
