package remote

import (
	"slices"
	"sync"
	"time"
)

// A hedge is a second request for the same bytes, made when the first has brought nothing
// for far longer than usual: services lose a request in a thousand for seconds, and some
// stop in the middle of a body. The first whole answer wins.
const (
	hedgeShare    = 0.05 // of the requests that are made anyway
	hedgeBurst    = 16   // hedges that may be made at once, so an outage is not doubled
	hedgeLeast    = 100 * time.Millisecond
	hedgeMost     = 2 * time.Second
	hedgesAtOnce  = 2 // for one read
	hedgeSamples  = 16
	hedgeRenewed  = 32             // samples after which p95 is computed anew
	hedgeUnknown  = hedgeMost / 2  // p95 of first bytes, while too few have come
	hedgeReserved = 16             // one connection of so many is for hedges alone
	slowFactor    = 3              // times p95 of whole answers: far slower than others
	slowLeast     = 5 * hedgeLeast // a body that goes on is likely to end by itself
	lookAgain     = hedgeMost / 8  // after which a late read is looked at once more
)

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

// pace is how fast answers are, of reads of one size. It is plain arithmetic.
type pace struct {
	first time.Duration // p95 of first bytes
	whole time.Duration // p95 of whole answers; 0: too few have come
}

// silence is how long nothing may come before a hedge.
func (p pace) silence() time.Duration { return min(max(2*p.first, hedgeLeast), hedgeMost) }

// patience is how much longer a request is waited for before it is late; 0 or less: it is.
// It was made an age ago, has brought came bytes, missing are to come, and the last of
// them came idle ago. It is late when it has been silent for too long, and when it is so
// slow that another one, made now, would overtake it.
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

// hedges is what the reads of an engine share. Safe for concurrent use. Locks are taken in
// this order: a race's, that of the engine, this one, that of stats.
type hedges struct {
	mu     sync.Mutex
	budget budget
	at     [sizeClasses]int // samples when pace was computed
	pace   [sizeClasses]pace
}

func newHedges() *hedges {
	h := &hedges{budget: budget{tokens: hedgeBurst}}
	for i := range h.pace {
		h.pace[i].first = hedgeUnknown
	}
	return h
}

// begin counts a request that is no hedge, and gives how fast others of its size were.
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

// reserved is how many of an engine's connections reads leave to hedges.
func reserved(c Config) int {
	if !c.Hedge {
		return 0
	}
	return c.Connections / hedgeReserved
}

// readBytes is how many bytes in flight reads may take: hedges need a few as well.
func readBytes(c Config) int64 {
	if !c.Hedge {
		return c.InFlightBytes
	}
	return c.InFlightBytes - c.InFlightBytes/hedgeReserved
}

// mayHedge takes a connection and the bytes of a hedge, or says no: nobody waits for the
// read, nor is going to within the time that an answer takes, or others need them more.
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

// hedged gives back what mayHedge took.
func (s *Storage) hedged(size int, f finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tired(time.Now(), f)
	s.used--
	s.flying -= int64(size)
	s.dispatch()
}
