package crops

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// room is the memory that chunks and indexes of shards are decoded in. Each worker may always hold
// eachBytes, in buffers that it reuses. A job that needs more reserves the rest, and frees it
// afterwards: as many such jobs run at a time as there is room for, at least one. So at most
// mostBytes are held in total. The size of a job follows from documents and object sizes, so it is
// known before anything is decoded. It is safe for concurrent use.
type room struct {
	totalBytes int64 // including cells and indexes; 0: no bound
	workers    int64

	eachBytes atomic.Int64
	leftBytes atomic.Int64 // of totalBytes, what descriptions leave

	mu        sync.Mutex
	mostBytes int64 // bound of everything held
	poolBytes int64 // of mostBytes, the part that is not the workers' own
	usedBytes int64 // of poolBytes
	// line are the waiters that there was no room for, in order of arrival. Only the first of them
	// may take anything, so that a large one is not overtaken forever by smaller ones.
	line []*waiter
}

// waiter is an entry in the line of a room. wake makes it try again; it may take locks.
type waiter struct{ wake func() }

// leastRoom is the size of the smallest room: a mount uses as much for its tables.
const leastRoom = 16 << 20

// fewEach: if not all workers can decode at a time, they hold 1/fewEach of the room.
const fewEach = 4

func newRoom(memoryBytes int64, workers int) *room {
	r := &room{workers: int64(workers)}
	if memoryBytes > 0 {
		r.totalBytes = max(memoryBytes, leastRoom)
	}
	r.share(0, 0, 0)
	return r
}

// share makes room for jobs that usually take up to usualBytes, and seldom up to mostBytes, in
// addition to descriptions. It returns the size of the room: enough for all workers, or else half
// of the memory that is left, or else enough for one.
func (r *room) share(usualBytes, mostBytes, describedBytes int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.totalBytes == 0 {
		r.eachBytes.Store(math.MaxInt64)
		r.leftBytes.Store(math.MaxInt64)
		return 0
	}
	left := max(r.totalBytes-describedBytes, min(r.totalBytes, leastRoom))
	r.mostBytes = min(max(min(r.workers*usualBytes+mostBytes-usualBytes, left/2), mostBytes), left)
	each := r.mostBytes
	if others := r.workers - 1; others > 0 {
		// The others' share leaves enough for the largest job.
		if each = max(r.mostBytes-mostBytes, 0) / others; each < usualBytes {
			each = min(each, r.mostBytes/(fewEach*r.workers))
		}
		each = min(each, r.mostBytes/r.workers)
	}
	r.poolBytes = r.mostBytes - r.workers*each
	r.eachBytes.Store(each)
	r.leftBytes.Store(left)
	for _, w := range r.line { // they may not need the pool any more
		go w.wake()
	}
	r.line = nil
	return r.mostBytes
}

// try takes n bytes of the pool if they are free, or if none of it is taken, provided that nothing
// has waited longer than w. Otherwise it puts w in line.
func (r *room) try(n int64, w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.Index(r.line, w)
	if first := len(r.line) == 0 || at == 0; !first || r.usedBytes > 0 && r.usedBytes+n > r.poolBytes {
		if at < 0 {
			r.line = append(r.line, w)
		}
		return false
	}
	r.usedBytes += n
	if at == 0 {
		r.line = slices.Delete(r.line, 0, 1)
		r.wakeFirst()
	}
	return true
}

// take repeats try until there is room.
func (r *room) take(n int64) {
	again := make(chan struct{}, 1)
	w := &waiter{func() {
		select {
		case again <- struct{}{}:
		default:
		}
	}}
	for !r.try(n, w) {
		<-again
	}
}

// give returns what was taken.
func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usedBytes -= n
	r.wakeFirst()
}

// wakeFirst makes the first in line try again. It runs in a goroutine of its own, because the
// caller may hold the waiter's locks. The caller holds mu.
func (r *room) wakeFirst() {
	if len(r.line) > 0 {
		go r.line[0].wake()
	}
}
