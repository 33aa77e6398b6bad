package gather

import (
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// readQueue passes completed reads to the goroutines that copy and verify them. It needs no limit
// of its own: it holds at most the reads in progress, each of which has its memory.
type readQueue struct {
	mu          sync.Mutex
	some        sync.Cond
	first, last *read
	closed      bool
}

func (q *readQueue) init() { q.some.L = &q.mu }

// add never blocks; it returns false after close.
func (q *readQueue) add(r *read) bool {
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

// next waits for a read, and returns nil when the queue is closed and empty. The caller counts as
// working except while it waits.
func (q *readQueue) next(work *meter.Level) *read {
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
