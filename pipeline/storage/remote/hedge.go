package remote

import (
	"slices"
	"sync"
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
