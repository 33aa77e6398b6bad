package diskcache

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	// fillPartBytes is the size of a part of the fill: large reads cost the fewest requests per
	// byte.
	fillPartBytes = 8 << 20
	// fillDepth is how many parts of the fill are fetched at a time.
	fillDepth = 4
)

// ahead is a goroutine that fetches the blocks that readers have announced, soonest first, and
// fills the cache when there are none.
type ahead struct {
	s      *Storage
	plans  plans
	wake   chan struct{}
	cancel context.CancelFunc
	ctx    context.Context // of the goroutine; ends with Close
	ended  sync.WaitGroup

	planned atomic.Int64 // bytes being fetched because they were announced
	full    bool         // there was no room for the block that is due first; used by the goroutine only

	mu      sync.Mutex
	ranges  []Range // to fill, as requested
	todo    []Range // ranges, or later what was lost of them
	at      int     // index in todo of the range being filled
	off     int64   // offset in it
	done    int64   // bytes that are in the cache or were fetched
	total   int64
	parts   int     // being fetched
	coming  int64   // bytes of these parts
	holes   []Range // lost since todo was begun
	again   int     // how often the fill went back for what it lost itself
	lostOwn bool    // some holes are the fill's own
	paused  bool
	dormant atomic.Bool   // paused until the next read
	ends    chan struct{} // closed at the end of the fill
	skipped bool          // something could not be fetched
	refused uint64        // value of keeper.counts, plus 1, when there was no room

	onceRead bool                       // the fill is FillOnceRead's
	decoded  map[storage.Object]*wanted // the decoded forms of objects: see DecodedOf
	leftOut  map[Range]key              // by the fill, in favour of decoded shards with these keys
}

func newAhead(s *Storage) *ahead {
	a := &ahead{s: s, plans: newPlans(), wake: make(chan struct{}, 1), ends: make(chan struct{}), decoded: map[storage.Object]*wanted{}, leftOut: map[Range]key{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	close(a.ends)
	return a
}

func (a *ahead) start() { a.ended.Go(a.serve) }

func (a *ahead) close() {
	a.cancel()
	a.ended.Wait()
}

func (a *ahead) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *ahead) serve() {
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.wake:
		}
		for a.ctx.Err() == nil && (a.bringWant() || a.fillPart()) {
		}
	}
}

// bringWant starts to fetch the block that is due first. It returns false if there is none, if
// enough is being fetched, or if there is no room for it now.
func (a *ahead) bringWant() bool {
	if a.full = false; a.planned.Load() >= a.s.config.BufferBytes/2 || a.s.behind() {
		return false
	}
	reader, w, ok := a.plans.next()
	if !ok {
		return false
	}
	c := chunkOf(w)
	if !c.sound() || !a.plans.holds(c) {
		a.plans.begun(reader, w)
		return true
	}
	got := a.bring(w.Object, runOf(w.OffsetBytes, w.SizeBytes), toRead, func(f *flight) { a.brings(f, c) })
	if got == noRoom {
		a.full = true
		return false
	}
	a.plans.begun(reader, w)
	return true
}

// brought is the result of an attempt to fetch pages.
type brought uint8

const (
	allBegun  brought = iota // they are in the cache or being fetched
	noRoom                   // for some of them
	notCached                // such objects are not cached, or the cache is off
)

// bring starts flights for those pages of an object that are neither in the cache nor being
// fetched.
func (a *ahead) bring(listed storage.Object, pages run, why purpose, each func(*flight)) brought {
	s := a.s
	if s.health.off.Load() || !s.begin(1) {
		return notCached
	}
	defer s.end()
	o := s.hold(listed)
	if o == nil {
		return notCached
	}
	defer s.release(o)
	o.mu.Lock()
	fresh, got := s.flightsFor(o, pages, why)
	for _, f := range fresh {
		each(f)
	}
	o.mu.Unlock()
	for _, f := range fresh {
		f.launch()
	}
	return got
}

// flightsFor makes flights for those pages of an object that are neither in the cache nor being
// fetched. The caller launches them. It holds o.mu, and the object is in use.
func (s *Storage) flightsFor(o *object, pages run, why purpose) (fresh []*flight, got brought) {
	sums := make([]byte, pages.pages()*sumBytes)
	if p := o.files.Load(); p != nil {
		if _, err := s.dir.disk.read(p.sums.FD(), sums, sumsAt(pages.begin)); err != nil {
			s.failed("read sums of "+o.listed.Path, err)
		}
	}
	for _, r := range missing(sums, pages.begin, s.config.GapBytes/pageBytes) {
		for at := r.begin; at < r.end; {
			if f := o.flightAt(at); f != nil {
				at = f.pages.end
				continue
			}
			part := run{at, min(r.end, o.nextFlight(at), at+s.config.MaxReadBytes/pageBytes)}
			if f := s.newFlight(o, part, why); f != nil {
				fresh = append(fresh, f)
			} else {
				got = noRoom
			}
			at = part.end
		}
	}
	return fresh, got
}

// brings marks a flight as one that fetches pages of an announced chunk.
func (a *ahead) brings(f *flight, c chunk) {
	n := f.pages.bytes()
	a.planned.Add(n)
	f.wants = func() bool { return a.ctx.Err() == nil && a.plans.holds(c) }
	f.after = func() { a.planned.Add(-n) }
}
