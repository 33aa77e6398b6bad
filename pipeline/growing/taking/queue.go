package taking

import (
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// queue is the settled files that are to be indexed, in the order in which they were told.
// One goroutine takes from it. Kept are some 50 bytes a settled file, of which none is a
// pointer that garbage collections would follow, and twice as much more while it waits.
type queue struct {
	mu      sync.Mutex
	wake    chan struct{}      // of one place: there is something
	changed chan struct{}      // closed and replaced when done, version or failures move on
	settled map[pathSum]uint64 // the file's place in the queue, also after it was indexed
	waiting []queued
	told    uint64 // places so far
	done    uint64 // up to this place all are indexed, or are no more
	version uint64 // of what is indexed
	working bool
	gone    []string // while working

	failures uint64
	failure  error // the last one, nil once indexing has succeeded
}

// pathSum stands for a path: 128 bits, so that no two of a dataset have the same.
type pathSum xxh3.Uint128

func sumOf(path string) pathSum { return pathSum(xxh3.HashString128(path)) }

type queued struct {
	place  uint64
	object storage.Object
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), changed: make(chan struct{}), settled: map[pathSum]uint64{}}
}

// add takes in a file that is settled.
func (q *queue) add(o storage.Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told++
	q.settled[sumOf(o.Path)] = q.told
	q.waiting = append(q.waiting, queued{q.told, o})
	q.rouse()
}

// rouse wakes who takes from the queue.
func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// remove ends with a file that is gone, or is written to.
func (q *queue) remove(path string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.settled, sumOf(path))
	if q.working {
		q.gone = append(q.gone, path)
	}
	q.moved()
}

// moved tells those who wait. mu is held.
func (q *queue) moved() {
	q.version++
	close(q.changed)
	q.changed = make(chan struct{})
}

// unlessSettled calls f if a file is not settled, as far as the looker has told; until f
// returns, it is not. f must not call the queue.
func (q *queue) unlessSettled(path string, f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.settled[sumOf(path)]; !ok {
		f()
	}
}

// onlySettled drops the shards that are not settled, in place.
func (q *queue) onlySettled(shards []growing.Shard) []growing.Shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(shards, func(s growing.Shard) bool {
		_, ok := q.settled[sumOf(s.Path)]
		return !ok
	})
}

// take gives the next files, at most so many, which end tells about. There may be none
// although there were some: they are gone by now.
func (q *queue) take(most int) (files []storage.Object, place uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	place = q.done
	n := 0
	for ; n < len(q.waiting) && len(files) < most; n++ {
		w := q.waiting[n]
		if place = w.place; q.settled[sumOf(w.object.Path)] == w.place {
			files = append(files, w.object)
		}
	}
	if n > 0 {
		q.working = true
	}
	return files, place
}

// left is how many files are still to be indexed.
func (q *queue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// end says that the files up to a place have been indexed, or why not: they stay then. It
// gives those that went meanwhile.
func (q *queue) end(place uint64, err error) (gone []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	gone, q.gone, q.working = q.gone, nil, false
	if err == nil && place == q.done {
		return gone // there was nothing
	}
	if q.failure = err; err != nil {
		q.failures++
		q.moved()
		return gone
	}
	n := 0
	for n < len(q.waiting) && q.waiting[n].place <= place {
		n++
	}
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil // its memory goes back
	}
	q.done = max(q.done, place)
	q.moved()
	return gone
}

// state is how far the queue is, and what is closed when that changes.
func (q *queue) state() (s queueState, changed <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return queueState{q.told, q.done, q.version, q.failures, q.failure}, q.changed
}

type queueState struct {
	told, done, version uint64
	failures            uint64
	failure             error
}

// again says that files were indexed that were not taken from the queue.
func (q *queue) again(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failure = err; err != nil {
		q.failures++
	}
	q.moved()
}
