package cubes

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// room is the memory that chunks and indexes of shards are decoded in. Each worker may hold eachBytes at any
// time, in buffers that it uses again. A job that takes more asks for the rest, and lets go of it afterwards:
// as many of them are done at a time as there is room for, down to one. So all that is held is at most
// mostBytes. How large a job is follows from documents and from sizes of objects, so it is known before
// anything is decoded. It is safe for concurrent use.
type room struct {
	totalBytes int64 // with cells and indexes; 0: no bound
	workers    int64

	eachBytes atomic.Int64
	leftBytes atomic.Int64 // of totalBytes, what descriptions leave

	mu        sync.Mutex
	mostBytes int64 // of all that is held
	poolBytes int64 // of mostBytes, what workers don't have
	usedBytes int64 // of poolBytes
	// line are those that there was no room for, in the order in which they came. Nobody else takes anything
	// before the first of them, so that what is large is not passed for ever by what is less so.
	line []*waiter
}

// waiter is somebody in the line of a room. wake lets it try again; it may take locks.
type waiter struct{ wake func() }

// leastRoom is the room of the least memory: a mount has as much for its tables.
const leastRoom = 16 << 20

// fewEach is the part of the room that workers hold where not all can decode at a time: 1/fewEach.
const fewEach = 4

func newRoom(memoryBytes int64, workers int) *room {
	r := &room{workers: int64(workers)}
	if memoryBytes > 0 {
		r.totalBytes = max(memoryBytes, leastRoom)
	}
	r.share(0, 0, 0)
	return r
}

// share makes room for jobs that usually take up to usualBytes, and seldom up to mostBytes, besides what is
// held of descriptions. It returns how much that is: enough for all workers, or else half of the memory that
// is left, or else enough for one.
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
		// What the others hold leaves enough for the largest.
		if each = max(r.mostBytes-mostBytes, 0) / others; each < usualBytes {
			each = min(each, r.mostBytes/(fewEach*r.workers))
		}
		each = min(each, r.mostBytes/r.workers)
	}
	r.poolBytes = r.mostBytes - r.workers*each
	r.eachBytes.Store(each)
	r.leftBytes.Store(left)
	for _, w := range r.line { // they may need nothing of the pool any more
		go w.wake()
	}
	r.line = nil
	return r.mostBytes
}

// try takes n bytes of the pool if they are there, or if nobody else has any of it, and if nobody waits for
// longer than w. Else w waits in line.
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

// take is try until there is room.
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

// give gives back what was taken.
func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usedBytes -= n
	r.wakeFirst()
}

// wakeFirst has the first in line try again, who may hold locks now. mu is held.
func (r *room) wakeFirst() {
	if len(r.line) > 0 {
		go r.line[0].wake()
	}
}
