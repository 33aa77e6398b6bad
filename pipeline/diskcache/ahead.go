package diskcache

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	// fillPartBytes is what is filled at a time: it costs a request the least a byte.
	fillPartBytes = 8 << 20
	// fillDepth is how many parts are filled at a time.
	fillDepth = 4
)

// ahead is a goroutine that brings what readers have planned, nearest first, and fills
// the cache when nothing is planned.
type ahead struct {
	s      *Storage
	plans  plans
	wake   chan struct{}
	cancel context.CancelFunc
	ctx    context.Context // of the goroutine: it ends with Close
	ended  sync.WaitGroup

	planned atomic.Int64 // bytes on their way because they were planned
	full    bool         // there was no room for the want that is due first; of the goroutine

	mu      sync.Mutex
	ranges  []Range // to fill, as they were asked for
	todo    []Range // these, or later what was lost of them
	at      int     // the one of todo that is being filled
	off     int64   // from where on, in it
	done    int64   // bytes that are here or were brought
	total   int64
	parts   int     // on their way
	coming  int64   // their bytes
	holes   []Range // what was lost since todo was begun
	again   int     // how often the fill went back for what it lost itself
	lostOwn bool    // some of holes are its own
	paused  bool
	dormant atomic.Bool   // paused until something is read
	ends    chan struct{} // closed when the fill has come to its end
	skipped bool          // something could not be brought
	refused uint64        // there was no room, when the directory had been counted so often, and once more
}

func newAhead(s *Storage) *ahead {
	a := &ahead{s: s, plans: newPlans(), wake: make(chan struct{}, 1), ends: make(chan struct{})}
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

// bringWant begins to bring the want that is due first. It says no where there is none,
// enough is on its way, or there is no room for it now.
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

// brought is what has become of pages that were to be brought.
type brought uint8

const (
	allBegun  brought = iota // they are here, or on their way
	noRoom                   // not for all of them
	notCached                // such objects are not kept, or nothing is any more
)

// bring starts flights for pages of an object that neither are here nor on their way.
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

// flightsFor makes flights for pages of an object that neither are here nor on their way.
// The caller launches them. o.mu is held, and the object is in use.
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

// brings makes a flight one that brings pages of a chunk that was planned.
func (a *ahead) brings(f *flight, c chunk) {
	n := f.pages.bytes()
	a.planned.Add(n)
	f.wants = func() bool { return a.ctx.Err() == nil && a.plans.holds(c) }
	f.after = func() { a.planned.Add(-n) }
}
