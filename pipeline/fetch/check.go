package fetch

import "sync"

// checkQueue hands loads whose bytes have come to the goroutines that look at
// their checksums. It holds no more than there are loads, each of which has
// its memory, so it needs no bound of its own.
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

// next waits for a load, and gives nil when the queue is closed and empty.
func (q *checkQueue) next() *load {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.loads) == 0 && !q.closed {
		q.some.Wait()
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

func (f *Fetcher) checkRecords() {
	for ld := f.checks.next(); ld != nil; ld = f.checks.next() {
		f.verify(ld)
		f.finish(ld)
		f.running.Done()
	}
}
