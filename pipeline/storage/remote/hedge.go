package remote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A hedge is a second request for the same bytes, made when the first has returned nothing for far
// longer than usual: services delay one request in a thousand by seconds, and some stop in the
// middle of a body. The first complete answer wins.
const (
	hedgeShare    = 0.05 // of the other requests
	hedgeBurst    = 16   // most hedges at once, so that an outage does not double the load
	hedgeLeast    = 100 * time.Millisecond
	hedgeMost     = 2 * time.Second
	hedgesAtOnce  = 2 // for one read
	hedgeSamples  = 16
	hedgeRenewed  = 32             // samples after which p95 is recomputed
	hedgeUnknown  = hedgeMost / 2  // assumed p95 of first bytes until there are enough samples
	hedgeReserved = 16             // one connection in this many is reserved for hedges
	slowFactor    = 3              // times p95 of whole answers: far slower than others
	slowLeast     = 5 * hedgeLeast // a body that makes progress is likely to finish on its own
	lookAgain     = hedgeMost / 8  // interval at which a late read is checked again
)

// budget limits the number of hedges. It is plain arithmetic.
type budget struct{ tokens float64 }

// earn is called for each request that is not a hedge.
func (b *budget) earn() { b.tokens = min(b.tokens+hedgeShare, hedgeBurst) }

func (b *budget) spend() bool {
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// pace is how fast reads of one size class are answered. It is plain arithmetic.
type pace struct {
	first time.Duration // p95 of first bytes
	whole time.Duration // p95 of whole answers; 0: too few samples
}

// silence returns how long a request may receive nothing before a hedge is made.
func (p pace) silence() time.Duration { return min(max(2*p.first, hedgeLeast), hedgeMost) }

// patience returns how much longer to wait before a request is late; if it is 0 or less, it is
// late. The request was made age ago, has received came bytes, still misses missing bytes, and
// received the last byte idle ago. It is late when it has been silent for too long, or is so slow
// that another one, made now, would overtake it.
func (p pace) patience(age, idle time.Duration, came, missing int) time.Duration {
	wait := p.silence() - idle
	if p.whole == 0 || came == 0 {
		return wait
	}
	left := max(slowFactor*p.whole, slowLeast) - age
	if rest := float64(age) * float64(missing) / float64(came); left <= 0 && rest <= float64(p.whole) {
		left = lookAgain
	}
	return min(wait, left)
}

// hedges is shared by the reads of an engine. It is safe for concurrent use. Lock order: a race's,
// the engine's, this one, that of stats.
type hedges struct {
	mu     sync.Mutex
	budget budget
	at     [sizeClasses]int // number of samples when pace was computed
	pace   [sizeClasses]pace
}

func newHedges() *hedges {
	h := &hedges{budget: budget{tokens: hedgeBurst}}
	for i := range h.pace {
		h.pace[i].first = hedgeUnknown
	}
	return h
}

// begin counts a request that is not a hedge, and returns the pace of others of its size.
func (h *hedges) begin(size int, of *stats) pace {
	c := sizeClass(size)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.budget.earn()
	of.mu.Lock()
	samples, first, whole := of.first[c].n, []time.Duration(nil), []time.Duration(nil)
	if samples >= hedgeSamples && (h.at[c] == 0 || samples-h.at[c] >= hedgeRenewed) {
		first, whole = of.first[c].appendTo(nil), of.whole[c].appendTo(nil)
	}
	of.mu.Unlock()
	if first != nil {
		slices.Sort(first)
		h.at[c], h.pace[c].first = samples, quantile(first, 0.95)
		if len(whole) >= hedgeSamples {
			slices.Sort(whole)
			h.pace[c].whole = quantile(whole, 0.95)
		}
	}
	return h.pace[c]
}

// reserved returns how many of an engine's connections reads leave to hedges.
func reserved(c Config) int {
	if !c.Hedge {
		return 0
	}
	return c.Connections / hedgeReserved
}

// readBytes returns how many bytes in flight reads may use; the rest is for hedges.
func readBytes(c Config) int64 {
	if !c.Hedge {
		return c.InFlightBytes
	}
	return c.InFlightBytes - c.InFlightBytes/hedgeReserved
}

// mayHedge reserves a connection and the bytes of a hedge. It returns false if no reader waits for
// the read or will within the time that an answer takes, or if there is no room for it.
func (s *Storage) mayHedge(r *read, size int, p pace) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranked(r)
	soon := (p.first + lookAgain).Seconds()
	if r.rank.class == filling || r.rank.class == planned && float64(r.rank.due) > s.slots.rate*soon {
		return false
	}
	if s.used >= s.config.Connections || s.flying+int64(size) > s.config.InFlightBytes || s.slots.resting(time.Now()) {
		return false
	}
	s.hedges.mu.Lock()
	defer s.hedges.mu.Unlock()
	if !s.hedges.budget.spend() {
		return false
	}
	s.used++
	s.flying += int64(size)
	s.stats.hedge()
	return true
}

// hedged releases what mayHedge reserved.
func (s *Storage) hedged(size int, f finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tired(time.Now(), f)
	s.used--
	s.flying -= int64(size)
	s.dispatch()
}

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
