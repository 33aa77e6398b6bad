package remote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A hedge is a second request for the same range, made when the first has shown nothing
// for far longer than usual: services lose a request in a thousand for seconds. The first
// whole answer wins.
const (
	hedgeShare   = 0.05 // of the requests that are made anyway
	hedgeBurst   = 16   // hedges that may be made at once, so an outage is not doubled
	hedgeLeast   = 100 * time.Millisecond
	hedgeMost    = 2 * time.Second
	hedgesAtOnce = 2 // for one read
	hedgeSamples = 16
	hedgeRenewed = 32 // samples after which p95 is computed anew
)

var errHedged = errors.New("another request for the same was faster")

// budget is what hedges are paid from. It is plain arithmetic.
type budget struct{ tokens float64 }

// earn is called for each request that is no hedge.
func (b *budget) earn() { b.tokens = min(b.tokens+hedgeShare, hedgeBurst) }

func (b *budget) spend() bool {
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// hedgeAfter is how long a first byte is waited for before a hedge, by the p95 of those
// before it.
func hedgeAfter(p95 time.Duration) time.Duration { return min(max(2*p95, hedgeLeast), hedgeMost) }

// hedges is what the reads of an engine share. Safe for concurrent use. Of the locks of an
// engine its own is taken first, then this one, then that of stats.
type hedges struct {
	mu     sync.Mutex
	budget budget
	at     [sizeClasses]int // samples when p95 was computed
	p95    [sizeClasses]time.Duration
}

func newHedges() *hedges { return &hedges{budget: budget{tokens: hedgeBurst}} }

// slow gives the p95 of first bytes of reads of a size; no, while too few have come.
func (s *Storage) slow(size int) (p95 time.Duration, ok bool) {
	c, h := sizeClass(size), s.hedges
	h.mu.Lock()
	defer h.mu.Unlock()
	s.stats.mu.Lock()
	w := &s.stats.first[c]
	samples, all := w.n, []time.Duration(nil)
	if samples >= hedgeSamples && (h.at[c] == 0 || samples-h.at[c] >= hedgeRenewed) {
		all = w.appendTo(nil)
	}
	s.stats.mu.Unlock()
	if all != nil {
		slices.Sort(all)
		h.at[c], h.p95[c] = samples, quantile(all, 0.95)
	}
	return h.p95[c], h.at[c] > 0
}

// race is exchange with hedges.
type race struct {
	s    *Storage
	path string
	q    question
	size int

	mu      sync.Mutex
	timer   *time.Timer
	settled bool // no more hedges
	cancel  map[int]context.CancelCauseFunc
	won     []byte // of the hedge that was first
	next    int
	all     sync.WaitGroup // hedges
}

// race makes the request of a read, with hedges where it shows nothing for long.
func (s *Storage) race(r *read, q question, p []byte) (n int, f finding) {
	s.hedges.mu.Lock()
	s.hedges.budget.earn()
	s.hedges.mu.Unlock()
	p95, known := s.slow(len(p))
	if !known || !s.urgent(r, p95) {
		return s.exchange(context.Background(), r.Object.Path, q, p, nil)
	}
	x := &race{s: s, path: r.Object.Path, q: q, size: len(p), cancel: map[int]context.CancelCauseFunc{}}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	x.cancel[0], x.next = cancel, 1
	after := hedgeAfter(p95)
	x.mu.Lock()
	x.timer = time.AfterFunc(after, func() { x.hedge(after) })
	x.mu.Unlock()
	n, f = s.exchange(ctx, x.path, q, p, x.settle)
	return x.end(n, f, p)
}

// urgent says whether a read is worth a hedge: somebody waits for it, or is going to
// within the time that its answer may take.
func (s *Storage) urgent(r *read, p95 time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.rank.class {
	case demanded:
		return true
	case planned:
		return float64(r.rank.due) <= s.slots.rate*p95.Seconds()
	}
	return false
}

// settle is called when the first request shows something: no more hedges are made.
func (x *race) settle() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settled = true
	x.timer.Stop()
}

// hedge makes another request, into memory of its own, if there is still nothing to be
// seen and the budget and the connections allow it.
func (x *race) hedge(after time.Duration) {
	x.mu.Lock()
	if x.settled || !x.s.mayHedge(x.size) {
		x.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	me := x.next
	x.next++
	x.cancel[me] = cancel
	x.all.Add(1)
	defer x.all.Done()
	if me < hedgesAtOnce {
		x.timer = time.AfterFunc(after, func() { x.hedge(after) })
	}
	x.mu.Unlock()

	p := make([]byte, x.size)
	_, f := x.s.exchange(ctx, x.path, x.q, p, nil)
	x.s.hedged(x.size, f)

	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.cancel, me)
	if f.kind != kindGood || x.won != nil {
		return
	}
	x.won, x.settled = p, true
	x.timer.Stop()
	for _, cancel := range x.cancel {
		cancel(errHedged)
	}
}

// end waits for all requests of a race, of which the first has come to its end, and
// gives what came of it. Nothing writes to p any more.
func (x *race) end(n int, f finding, p []byte) (int, finding) {
	x.mu.Lock()
	x.settled = true
	x.timer.Stop()
	delete(x.cancel, 0)
	if f.kind == kindGood && x.won == nil {
		for _, cancel := range x.cancel {
			cancel(errHedged)
		}
	}
	x.mu.Unlock()
	x.all.Wait() // if the first request failed a hedge may still be right
	if f.kind == kindGood || x.won == nil {
		return n, f
	}
	x.s.stats.wonHedge()
	return copy(p, x.won), finding{}
}

// mayHedge takes a connection and the bytes of a hedge, or says no.
func (s *Storage) mayHedge(size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// hedged gives back what mayHedge took.
func (s *Storage) hedged(size int, f finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tired(time.Now(), f)
	s.used--
	s.flying -= int64(size)
	s.dispatch()
}
