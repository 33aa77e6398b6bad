package remote

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errHedged = errors.New("another request for the same was faster")
	errLate   = errors.New("the answer came too slowly")
)

// race is one attempt at a read. The first request writes to the read's buffer, and hedges write to
// memory of their own:
//
//	p       |■■■■■■■■■□□□□□□□□□□|  the first request, which has stalled
//	hedge            |■■■■□□□□□□|  from where the first one stalled, or from the beginning
//
// The first complete answer wins. Nothing writes to p once the race has ended.
type race struct {
	s    *Storage
	r    *read
	q    question
	size int
	pace pace

	mu       sync.Mutex
	timer    *time.Timer // checks whether all requests are late
	requests []*request  // the first one, followed by hedges
	running  int
	quiet    sync.Cond // signals that a hedge has ended
	settled  bool      // no more hedges
	won      []byte    // the bytes of the hedge that won
	wonFrom  int       // where they begin in p
}

// request is one request of a race.
type request struct {
	from   int // it is for p[from:]
	cancel context.CancelCauseFunc
	began  time.Time
	came   atomic.Int64 // bytes of its body
	last   atomic.Int64 // time of the last of them, in nanoseconds since began
	ended  bool         // guarded by the race's mu
}

// seen records n bytes of the body. The goroutine that reads the body calls it.
func (q *request) seen(n int) {
	q.came.Add(int64(n))
	q.last.Store(int64(time.Since(q.began)))
}

// race makes the request of a read, with hedges if nothing arrives for long.
func (s *Storage) race(r *read, q question, p []byte) (n int, f finding) {
	x := &race{s: s, r: r, q: q, size: len(p), pace: s.hedges.begin(len(p), &s.stats)}
	x.quiet.L = &x.mu
	x.mu.Lock()
	ctx, first := x.add(0)
	x.timer = time.AfterFunc(x.pace.silence(), x.look)
	x.mu.Unlock()
	defer first.cancel(nil)
	n, f = s.exchange(ctx, r.Object.Path, q, p, r.silent(s), first.seen)
	return x.end(n, f, p)
}

// add adds another request. mu is held.
func (x *race) add(from int) (context.Context, *request) {
	ctx, cancel := context.WithCancelCause(context.Background())
	q := &request{from: from, cancel: cancel, began: time.Now()}
	x.requests = append(x.requests, q)
	x.running++
	return ctx, q
}

// look makes a hedge if all requests are late and a reader waits.
func (x *race) look() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.settled {
		return
	}
	if wait := x.patience(); wait > 0 {
		x.timer.Reset(wait)
		return
	}
	if x.requests[0].ended { // another attempt is better than waiting for these
		x.settle(errLate)
		return
	}
	from := x.from()
	if len(x.requests) > hedgesAtOnce || !x.s.mayHedge(x.r, x.size-from, x.pace) {
		x.timer.Reset(lookAgain)
		return
	}
	ctx, q := x.add(from)
	go x.hedge(ctx, q)
	x.timer.Reset(x.pace.silence())
}

// patience returns how long until all requests may be late. mu is held.
func (x *race) patience() (wait time.Duration) {
	for _, q := range x.requests {
		if !q.ended {
			age, came := time.Since(q.began), int(q.came.Load())
			wait = max(wait, x.pace.patience(age, age-time.Duration(q.last.Load()), came, x.size-q.from-came))
		}
	}
	return wait
}

// from returns where in p a hedge begins. Bytes that have already arrived are not requested again
// if they are enough to be worth a range request. mu is held.
func (x *race) from() int {
	came := int(x.requests[0].came.Load())
	if x.q.whole || came < resumeBytes || came >= x.size {
		return 0
	}
	return came
}

// hedge makes another request.
func (x *race) hedge(ctx context.Context, h *request) {
	defer h.cancel(nil)
	q, p := x.q, make([]byte, x.size-h.from)
	if h.from > 0 {
		q.begin, q.plain = q.begin+int64(h.from), false
		q.whole = q.size <= wholeBytes // the first request had no range; this one may be answered with the whole object
	}
	_, f := x.s.exchange(ctx, x.r.Object.Path, q, p, nil, h.seen)
	x.s.hedged(len(p), f)

	x.mu.Lock()
	defer x.mu.Unlock()
	h.ended = true
	x.running--
	if f.kind == kindGood && x.won == nil {
		x.won, x.wonFrom = p, h.from
		x.settle(errHedged)
	}
	x.quiet.Broadcast()
}

// settle cancels all running requests, and allows no more. mu is held.
func (x *race) settle(why error) {
	x.settled = true
	x.timer.Stop()
	for _, q := range x.requests {
		q.cancel(why)
	}
}

// end waits for the hedges of a race whose first request has ended, and returns the result.
func (x *race) end(n int, f finding, p []byte) (int, finding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.requests[0].ended = true
	x.running--
	if f.kind == kindGood || f.kind == kindFinal {
		x.settle(errHedged)
	}
	for x.running > 0 { // even if the first request failed, a hedge may succeed
		x.quiet.Wait()
	}
	x.settled = true
	x.timer.Stop()
	// A hedge that begins after the bytes of the first request is useful only if all bytes before
	// it arrived.
	if f.kind == kindGood || x.won == nil || n < x.wonFrom {
		return n, f
	}
	x.s.stats.wonHedge()
	copy(p[x.wonFrom:], x.won)
	return len(p), finding{}
}
