package cached

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

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
	objects []storage.Object // to fill
	at      int              // the one that is being filled
	off     int64            // from where on
	done    int64            // bytes that are here or were brought
	total   int64
	parts   int // on their way
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
	got := a.bring(w.Object, runOf(w.OffsetBytes, w.SizeBytes), false, func(f *flight) { a.brings(f, c) })
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
func (a *ahead) bring(listed storage.Object, pages run, onlyGood bool, each func(*flight)) brought {
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
	fresh, got := s.flightsFor(o, pages, onlyGood)
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
func (s *Storage) flightsFor(o *object, pages run, onlyGood bool) (fresh []*flight, got brought) {
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
			if f := s.newFlight(o, part, onlyGood); f != nil {
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

// fillPart begins to bring the next part. It says no where there is none, or where it is
// not the time for it: what readers have planned and what was not begun comes first, unless
// there is no room for it. So nothing is filled where the service is slower than its readers.
func (a *ahead) fillPart() bool {
	a.mu.Lock()
	if a.s.health.off.Load() {
		a.skipped, a.at = true, len(a.objects)
	}
	if a.at >= len(a.objects) {
		a.endFill()
		a.mu.Unlock()
		return false
	}
	if a.paused || a.parts >= fillDepth || !a.s.buffers.idle() || !a.s.health.writes() || a.plans.wait() && !a.full {
		a.mu.Unlock()
		return false
	}
	o, off := a.objects[a.at], a.off
	a.mu.Unlock()

	counts := a.s.keeper.counts.Load()
	n := min(fillPartBytes, o.SizeBytes-off)
	got := allBegun
	if n > 0 {
		got = a.bring(o, runOf(off, n), true, a.fills)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at >= len(a.objects) || a.objects[a.at] != o || a.off != off {
		return true // there is another fill
	}
	switch {
	case got != noRoom:
		a.skipped = a.skipped || got == notCached
		a.done += n
		if a.off += n; a.off >= o.SizeBytes {
			a.at, a.off = a.at+1, 0
		}
		a.refused = 0
	case a.parts > 0 || a.s.room.busy() || a.s.room.waits(n):
		return false // what is on its way may take less than it has reserved, or have to be counted: its end, or the count, wakes
	case a.refused == 0:
		a.refused = counts + 1
		a.s.keeper.count() // there may be room, when it is known what others have
		return false
	case counts > a.refused: // one that began after that has ended
		a.skipped, a.at, a.refused = true, len(a.objects), 0
	default:
		a.s.keeper.count()
		return false
	}
	return true
}

// fills makes a flight one of the fill.
func (a *ahead) fills(f *flight) {
	a.mu.Lock()
	a.parts++
	a.mu.Unlock()
	f.fill = true
	f.wants = func() bool { return a.ctx.Err() == nil }
	f.after = func() {
		a.mu.Lock()
		a.parts--
		a.skipped = a.skipped || f.err != nil
		a.mu.Unlock()
	}
}

// endFill tells those who wait for the fill. a.mu is held.
func (a *ahead) endFill() {
	if a.parts > 0 {
		return
	}
	select {
	case <-a.ends:
	default:
		close(a.ends)
	}
}

// Fill brings what is missing of objects, in their order, in the background and after
// whatever is planned, as far as there is room for good. It replaces what was to be filled.
func (s *Storage) Fill(objects []storage.Object) {
	a := s.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endFill()
	a.objects, a.at, a.off, a.done, a.total, a.skipped, a.refused = objects, 0, 0, 0, 0, false, 0
	for _, o := range objects {
		a.total += o.SizeBytes
	}
	select {
	case <-a.ends:
		a.ends = make(chan struct{})
	default:
	}
	a.poke()
}

// FillOnceRead is Fill, but begins with the first read, or plan, that comes after it: a
// dataset that is opened, and that nobody reads from, is not fetched.
func (s *Storage) FillOnceRead(objects []storage.Object) {
	s.PauseFill(true)
	s.Fill(objects)
	s.ahead.dormant.Store(true)
}

// read begins a fill that has waited for it.
func (a *ahead) read() {
	if a.dormant.Load() && a.dormant.Swap(false) {
		a.s.PauseFill(false)
	}
}

// PauseFill stops the fill after the parts that are on their way, or has it go on.
func (s *Storage) PauseFill(pause bool) {
	s.ahead.mu.Lock()
	s.ahead.paused = pause
	s.ahead.mu.Unlock()
	s.ahead.poke()
}

// ErrNotFilled says that not all of what was to be filled is in the cache.
var ErrNotFilled = errors.New("not all of the dataset is in the cache: give it more room with --cache-size, or see the log")

// Warm waits until the fill has come to its end, and begins one that waits for a read. It
// fails with ErrNotFilled where not all could be brought, and with the context's error.
func (s *Storage) Warm(ctx context.Context) error {
	a := s.ahead
	a.read()
	for range warmRounds {
		a.mu.Lock()
		ends := a.ends
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.ctx.Done():
			return fs.ErrClosed
		case <-ends:
		}
		a.mu.Lock()
		objects, skipped := a.objects, a.skipped
		a.mu.Unlock()
		switch {
		case skipped:
			return ErrNotFilled
		case s.holds(objects):
			return nil
		}
		// A page could not be written, or was on its way to somebody else.
		select {
		case <-s.config.Clock.After(warmPause):
		case <-ctx.Done():
			return ctx.Err()
		case <-a.ctx.Done():
			return fs.ErrClosed
		}
		s.Fill(objects)
	}
	return ErrNotFilled
}

// warmRounds is how often Warm fills what is missing at the end of a fill, and warmPause how
// long it waits before that for what others have on its way.
const (
	warmRounds = 4
	warmPause  = 500 * time.Millisecond
)

// holds says whether all pages of objects are here, by their sums.
func (s *Storage) holds(objects []storage.Object) bool {
	for _, listed := range objects {
		if listed.SizeBytes > 0 && !s.holdsObject(listed) {
			return false
		}
	}
	return true
}

func (s *Storage) holdsObject(listed storage.Object) bool {
	if s.health.off.Load() || !s.begin(1) {
		return false
	}
	defer s.end()
	o := s.hold(listed)
	if o == nil {
		return false
	}
	defer s.release(o)
	files := s.opened(o, false)
	if files == nil {
		return false
	}
	for begin := int64(0); begin < o.pages; begin += sumsAtOnce {
		pages := run{begin, min(begin+sumsAtOnce, o.pages)}
		sums := make([]byte, pages.pages()*sumBytes)
		if _, err := s.dir.disk.read(files.sums.FD(), sums, sumsAt(begin)); err != nil || len(missing(sums, begin, 0)) > 0 {
			return false
		}
	}
	return true
}

// Filled is how many bytes of what is to be filled are here or on their way, and how many
// there are in all.
func (s *Storage) Filled() (done, total int64) {
	s.ahead.mu.Lock()
	defer s.ahead.mu.Unlock()
	return s.ahead.done, s.ahead.total
}

// filled is how much of what is to be filled is here, 0…1; 1 where nothing is.
func (a *ahead) filled() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total == 0 {
		return 1
	}
	return float64(a.done) / float64(a.total)
}
