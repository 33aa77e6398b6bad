package uring

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stuckAfter is the time after which a call is stuck, by default.
	stuckAfter = time.Second

	// MaxStuck bounds the stuck workers of a Pool, by default: each holds a thread.
	MaxStuck = 512

	// MaxStuckOfKey is the number of stuck calls with the same key from which on no more are made.
	MaxStuckOfKey = 4

	// MaxBatch is the most jobs that a worker of a Pool takes at a time.
	MaxBatch = 4

	// ticks is how often a call is looked at until it is stuck, so it is stuck after stuckAfter and
	// at most 1/ticks more.
	ticks = 4
)

// Pool runs system calls that may hang on goroutines of its own: a read, an open or a close of a file
// whose server is dead may return after minutes, or never. It belongs to an owner, whose jobs it does:
// the engines read with one, and storages open and look up files.
//
// # Bounds
//
// Jobs are done by workers, goroutines of which each Crew has a bounded number. A worker marks its
// calls with Begin and End. A call that takes longer than a second is stuck: its worker no longer
// counts, and another may start in its place, so calls that hang don't keep others from being made.
// This does no harm if the call is merely slow. A worker whose stuck call returns counts again, and
// ends after its job if there are too many.
//
// At most MaxStuck workers of a pool can be stuck. Further calls that hang keep their places, so a
// pool never has more than MaxStuck workers besides those that its crews may have.
//
// Each call has a key, the file that it is about, for example. While MaxStuckOfKey calls with the
// same key are stuck, Park keeps further jobs of that key until one of the calls returns. So one
// file that hangs does not use up all workers. Keys that have their type's zero value are exempt.
//
// # Ownership
//
// The pool has no lock of its own. It shares that of its owner, which usually guards more with it.
// A pool takes jobs over: each is passed to Do exactly once, or more often if it is parked. Nothing
// is dropped, also after Close was called.
//
// Close waits until all jobs are done, including those that hang, because the kernel may still
// write to the memory of a call that has not returned, and its descriptors are in use.
//
// The exported fields may be changed before the first job.
type Pool[K comparable, J any] struct {
	StuckAfter time.Duration
	MaxStuck   int

	mu      *sync.Mutex // the owner's, which guards what follows
	crews   []*Crew[K, J]
	workers map[*Worker[K, J]]struct{} // all that run
	spare   []*Worker[K, J]            // for reuse
	quiet   sync.Cond                  // signals that no workers are left
	stalls  map[K]*stall[K, J]         // keys with stuck calls
	stuck   atomic.Int64               // stuck workers; changed with mu held
	closed  bool
	ticking atomic.Bool // the timer runs
	timer   *time.Timer // calls tick
}

// stall is the state of a key with stuck calls.
type stall[K comparable, J any] struct {
	stuck  int            // number of calls
	parked []parked[K, J] // jobs that wait until one of them returns
}

type parked[K comparable, J any] struct {
	crew *Crew[K, J]
	job  J
}

// NewPool returns a pool without crews that shares its owner's lock.
func NewPool[K comparable, J any](mu *sync.Mutex) *Pool[K, J] {
	p := &Pool[K, J]{StuckAfter: stuckAfter, MaxStuck: MaxStuck, mu: mu, workers: map[*Worker[K, J]]struct{}{}, stalls: map[K]*stall[K, J]{}}
	p.quiet.L = mu
	p.timer = time.AfterFunc(time.Hour, p.tick)
	p.timer.Stop()
	return p
}

// Crew is the workers of a pool for one kind of job. Its exported fields are set before AddCrew.
type Crew[K comparable, J any] struct {
	// Most returns how many workers may run at a time, not counting stuck ones. It is called with
	// the owner's lock held.
	Most func() int
	// Do does a job, or parks it. It is called without the owner's lock, concurrently.
	Do func(w *Worker[K, J], j J)
	// Begins and Ends are called when a worker begins and ends, with the owner's lock held, for
	// what the worker has in Local. Either may be nil.
	Begins, Ends func(w *Worker[K, J])
	// Batch is how many jobs a worker may take at a time, from 1 to MaxBatch. The jobs that follow
	// one that is stuck are passed on to other workers.
	Batch int
	// Stays is whether workers that have no jobs stay until Close. Otherwise they end.
	Stays bool
	// Yields is whether workers let other goroutines run after each batch: system calls that don't
	// wait keep the processor for 10 ms.
	Yields bool

	pool    *Pool[K, J]
	first   queue[J] // before those in waiting
	waiting queue[J]
	members int       // workers, except stuck ones
	idle    int       // members that will look for a job next
	work    sync.Cond // jobs were pushed, or the pool was closed
}

// AddCrew adds a crew to the pool. It is called before the first job.
func (p *Pool[K, J]) AddCrew(c *Crew[K, J]) *Crew[K, J] {
	c.pool = p
	c.work.L = p.mu
	p.crews = append(p.crews, c)
	return c
}

// Push appends jobs to the crew's queue, for the next call of Start. The owner's lock is held.
func (c *Crew[K, J]) Push(jobs ...J) { c.waiting.push(jobs...) }

// PushFirst is Push for a job that is done before those that Push has appended.
func (c *Crew[K, J]) PushFirst(j J) { c.first.push(j) }

// left returns the number of jobs that no worker has taken.
func (c *Crew[K, J]) left() int { return c.first.len() + c.waiting.len() }

// Start lets workers do the jobs that were pushed, starting one for each job without an idle one,
// as far as the crews' bounds permit. The owner's lock is held. It never waits, and calls no Do.
func (p *Pool[K, J]) Start() {
	for _, c := range p.crews {
		left := c.left()
		if left == 0 {
			continue
		}
		if c.Stays {
			for range min(c.idle, left) {
				c.work.Signal()
			}
		}
		for c.idle < left && c.members < c.Most() {
			c.members++
			c.idle++
			w := &Worker[K, J]{}
			if n := len(p.spare); n > 0 {
				w, p.spare = p.spare[n-1], p.spare[:n-1]
			}
			w.crew = c
			if c.Begins != nil {
				c.Begins(w)
			}
			p.workers[w] = struct{}{}
			go w.run()
		}
	}
}

// Stuck returns the number of stuck workers. It needs no lock.
func (p *Pool[K, J]) Stuck() int64 { return p.stuck.Load() }

// Close waits until all jobs are done and all workers have ended. The owner's lock is held; it is
// released while Close waits. Close may be called again, to wait for jobs that were pushed since.
func (p *Pool[K, J]) Close() {
	p.closed = true
	for _, c := range p.crews {
		c.work.Broadcast()
	}
	for len(p.workers) > 0 {
		p.quiet.Wait()
	}
	if p.timer.Stop() {
		p.ticking.Store(false) // for the calls of jobs that are pushed later
	}
}

// The state of a worker: the number of calls that have returned, times 4, and these bits.
const (
	inCall  = 1
	isStuck = 2 // the call is stuck; set by tick
	oneCall = 4
)

// Worker is one goroutine of a crew. Workers are reused.
type Worker[K comparable, J any] struct {
	Local any // the owner's, for Do; see Crew.Begins

	crew  *Crew[K, J]
	taken [MaxBatch]J
	n     int          // number of taken jobs
	next  atomic.Int32 // index in taken of the next job; later ones may be passed on

	state atomic.Uint64
	calls uint64           // that have returned
	key   K                // of the call; others may read it while isStuck is set
	gone  func(stuck bool) // as for key

	seen uint64 // state at the last tick
	age  int    // number of ticks that have seen it
}

// run does jobs until there are none left, or too many workers.
func (w *Worker[K, J]) run() {
	c := w.crew
	mu := c.pool.mu
	mu.Lock()
	defer mu.Unlock()
	for w.take() {
		mu.Unlock()
		for {
			i := int(w.next.Add(1)) - 1
			if i >= w.n {
				break
			}
			j := w.taken[i]
			clear(w.taken[i : i+1])
			c.Do(w, j)
		}
		if c.Yields {
			runtime.Gosched()
		}
		mu.Lock()
		c.idle++
	}
}

// take gives a worker its share of the jobs, and waits for some if the crew stays. If it returns
// false, the worker is not counted any more, and must end.
func (w *Worker[K, J]) take() bool {
	c := w.crew
	p := c.pool
	for c.Stays && c.left() == 0 && !p.closed && c.members <= c.Most() {
		c.work.Wait()
	}
	c.idle--
	w.n = 0
	if c.members <= c.Most() {
		share := min(max(c.left()/max(c.members, 1), 1), c.Batch)
		for _, q := range []*queue[J]{&c.first, &c.waiting} {
			for w.n < share && q.len() > 0 {
				w.taken[w.n] = q.pop()
				w.n++
			}
		}
	}
	w.next.Store(0)
	if w.n > 0 {
		return true
	}
	if c.left() > 0 {
		c.work.Signal() // another one takes the job for which this one was woken
	}
	c.members--
	delete(p.workers, w)
	if c.Ends != nil {
		c.Ends(w)
	}
	p.spare = append(p.spare, w)
	if len(p.workers) == 0 {
		p.quiet.Broadcast()
	}
	return false
}

// Park reports whether so many calls with this key are stuck that the job must wait. If so, the
// pool keeps it, and passes it to Do again when one of them has returned. Park is called by Do,
// before Begin.
func (w *Worker[K, J]) Park(key K, j J) bool {
	p := w.crew.pool
	var exempt K
	if p.stuck.Load() == 0 || key == exempt {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stalls[key]
	if st == nil || st.stuck < MaxStuckOfKey {
		return false
	}
	st.parked = append(st.parked, parked[K, J]{w.crew, j})
	return true
}

// Begin marks the beginning of calls that may hang. It is called by Do, and must be followed by
// End. gone may be nil. It is called with true if the calls are stuck, and with false after these
// have returned, without the owner's lock, on goroutines of the pool; the two calls may overlap, in
// any order, if the calls return just then.
func (w *Worker[K, J]) Begin(key K, gone func(stuck bool)) {
	w.key, w.gone = key, gone
	w.state.Store(w.calls*oneCall | inCall)
	if p := w.crew.pool; !p.ticking.Load() && p.ticking.CompareAndSwap(false, true) {
		p.timer.Reset(p.StuckAfter / ticks)
	}
}

// End marks that the calls have returned.
func (w *Worker[K, J]) End() {
	w.calls++
	before := w.state.Swap(w.calls * oneCall)
	var none K
	if before&isStuck == 0 {
		w.key, w.gone = none, nil
		return
	}
	p := w.crew.pool
	p.mu.Lock() // after tick, which reads key and gone
	key, gone := w.key, w.gone
	w.key, w.gone = none, nil
	p.stuck.Add(-1)
	w.crew.members++
	st := p.stalls[key]
	st.stuck--
	for _, x := range st.parked {
		x.crew.Push(x.job)
	}
	st.parked = nil
	if st.stuck == 0 {
		delete(p.stalls, key)
	}
	p.Start()
	p.mu.Unlock()
	if gone != nil {
		gone(false)
	}
}

// tick looks at all calls, from time to time while there are some that are not stuck.
func (p *Pool[K, J]) tick() {
	p.mu.Lock()
	var gone []func(stuck bool)
	for w := range p.workers {
		if w.becomesStuck() && w.gone != nil {
			gone = append(gone, w.gone)
		}
	}
	p.Start()
	p.mu.Unlock()
	for _, f := range gone {
		f(true)
	}
	if p.busy() {
		p.timer.Reset(p.StuckAfter / ticks)
		return
	}
	p.ticking.Store(false)
	// A call may have begun before that, and relied on this tick.
	if p.busy() && p.ticking.CompareAndSwap(false, true) {
		p.timer.Reset(p.StuckAfter / ticks)
	}
}

// busy reports whether there are calls that may become stuck.
func (p *Pool[K, J]) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		if w.state.Load()&(inCall|isStuck) == inCall {
			return true
		}
	}
	return false
}

// becomesStuck looks at a worker's call. If it has taken too long, the worker is not counted any
// more, and the other jobs that it has taken are passed on. The owner's lock is held.
func (w *Worker[K, J]) becomesStuck() bool {
	c := w.crew
	p := c.pool
	now := w.state.Load()
	if now != w.seen {
		w.seen, w.age = now, 0
	}
	w.age++
	if now&(inCall|isStuck) != inCall || w.age <= ticks || p.stuck.Load() >= int64(p.MaxStuck) {
		return false
	}
	if !w.state.CompareAndSwap(now, now|isStuck) {
		return false // it has just returned
	}
	p.stuck.Add(1)
	c.members--
	st := p.stalls[w.key]
	if st == nil {
		st = &stall[K, J]{}
		p.stalls[w.key] = st
	}
	st.stuck++
	for i := int(w.next.Swap(MaxBatch)); i < w.n; i++ {
		c.PushFirst(w.taken[i])
		clear(w.taken[i : i+1])
	}
	return true
}

// queue is a first-in-first-out list that reuses its memory. The zero value is empty. One of jobs takes
// 24 bytes for each, besides the request and the buffer that the submitter holds anyway.
type queue[T any] struct {
	items []T
	head  int
}

// len returns the number of items.
func (q *queue[T]) len() int { return len(q.items) - q.head }

// push appends items.
func (q *queue[T]) push(items ...T) {
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, items...)
}

// first returns the oldest item, which is valid until the next push or pop. The queue must not be
// empty.
func (q *queue[T]) first() *T { return &q.items[q.head] }

// pop removes and returns the oldest item. The queue must not be empty.
func (q *queue[T]) pop() T {
	var none T
	item := q.items[q.head]
	q.items[q.head] = none
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return item
}
