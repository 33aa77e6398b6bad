package snapshot

import (
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// queue has the settled files to be indexed, in the order in which they were reported. One
// goroutine takes from it. It takes about 50 bytes per settled file, without pointers that garbage
// collections would follow, and twice as much again while the file waits.
type queue struct {
	mu      sync.Mutex
	wake    chan struct{}      // capacity 1: the queue is not empty
	changed chan struct{}      // closed and replaced when done, version or failures change
	settled map[pathSum]uint64 // the file's position in the queue, also after it was indexed
	waiting []queued
	told    uint64 // positions so far
	done    uint64 // all files up to this position are indexed or gone
	version uint64 // version of the index
	working bool
	gone    []string // removed while working

	failures uint64
	failure  error // the last failure, nil once indexing has succeeded
}

// pathSum identifies a path: with 128 bits no two of a dataset collide.
type pathSum xxh3.Uint128

func sumOf(path string) pathSum { return pathSum(xxh3.HashString128(path)) }

type queued struct {
	place  uint64
	object storage.Object
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), changed: make(chan struct{}), settled: map[pathSum]uint64{}}
}

// add appends a settled file.
func (q *queue) add(o storage.Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told++
	q.settled[sumOf(o.Path)] = q.told
	q.waiting = append(q.waiting, queued{q.told, o})
	q.rouse()
}

// rouse wakes the goroutine that takes from the queue.
func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// remove removes a file that is gone, or is being written.
func (q *queue) remove(path string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.settled, sumOf(path))
	if q.working {
		q.gone = append(q.gone, path)
	}
	q.moved()
}

// moved wakes all waiters. It is called with mu held.
func (q *queue) moved() {
	q.version++
	close(q.changed)
	q.changed = make(chan struct{})
}

// unlessSettled calls f if a file is not settled, according to the watcher's reports; it stays so
// until f returns. f must not call the queue.
func (q *queue) unlessSettled(path string, f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.settled[sumOf(path)]; !ok {
		f()
	}
}

// onlySettled removes the shards that are not settled, in place.
func (q *queue) onlySettled(shards []catalog.LiveShard) []catalog.LiveShard {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(shards, func(s catalog.LiveShard) bool {
		_, ok := q.settled[sumOf(s.Path)]
		return !ok
	})
}

// start returns the next files, at most most; the caller reports their outcome with end. There may
// be none although some were waiting, if they are gone.
func (q *queue) start(most int) (files []storage.Object, place uint64) {
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

// left returns how many files are still to be indexed.
func (q *queue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// end records that the files up to a position have been indexed, or the error, in which case they
// stay. It returns the files that were removed meanwhile.
func (q *queue) end(place uint64, err error) (gone []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	gone, q.gone, q.working = q.gone, nil, false
	if err == nil && place == q.done {
		return gone // there were none
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
		q.waiting = nil // free its memory
	}
	q.done = max(q.done, place)
	q.moved()
	return gone
}

// state returns the progress of the queue, and a channel that is closed when it changes.
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

// again records the outcome of indexing files that were not taken from the queue.
func (q *queue) again(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failure = err; err != nil {
		q.failures++
	}
	q.moved()
}
