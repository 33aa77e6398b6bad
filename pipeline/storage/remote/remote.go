package remote

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// wholeBytes is up to which size an object is read whole for a range of it, where the
// server knows no ranges.
const wholeBytes = 8 << 20

// longestPause is for how long one answer stops all new requests. Services say times
// up to an hour; what waits is asked for again sooner, a request at a time.
const longestPause = 30 * time.Second

// Storage is a storage.Storage over a Source. Each read is one request, made anew until
// it is right or can't be. Reads that wait for a slot are begun by rank; what they are
// for is said by Plan.
type Storage struct {
	source  Source
	config  Config
	began   time.Time // of New, before anything was asked
	listed  listed
	doubts  *doubts
	knownAt map[string]int // of Config.Known's objects, by path
	stats   stats
	hedges  *hedges                            // nil: there are none
	worked  atomic.Bool                        // the service has answered once
	omitted atomic.Pointer[[]storage.Omission] // by the last List

	toldLeft, toldTimes sync.Once // see tell
	trouble             trouble

	mu       sync.Mutex
	plans    plans
	quiet    sync.Cond // underWay has become 0
	queue    queue
	waiting  map[*read]*time.Timer // for their next attempt
	slots    slots
	used     int   // slots that are taken
	fills    int   // of them by fill
	flying   int64 // bytes that are asked for
	paused   time.Time
	waker    *time.Timer // dispatches once more; nil: none is set
	seq      uint64
	underWay int // reads whose Done has not been called
	streams  map[*stream]struct{}
	closed   bool
	closing  sync.Once
	closeErr error
}

var (
	_ storage.Storage    = (*Storage)(nil)
	_ storage.Settler    = (*Storage)(nil)
	_ storage.Planner    = (*Storage)(nil)
	_ storage.Filler     = (*Storage)(nil)
	_ storage.Sequential = (*Storage)(nil)
)

// New makes an engine over a source, which is closed with it. It sends nothing.
func New(source Source, c Config) (*Storage, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", source.Name(), err)
	}
	s := &Storage{
		source: source, config: c, began: time.Now(), slots: newSlots(c.Connections - reserved(c)), plans: plans{},
		waiting: map[*read]*time.Timer{}, streams: map[*stream]struct{}{}, doubts: newDoubts(),
	}
	if c.Hedge {
		s.hedges = newHedges()
	}
	if c.Known != nil {
		s.knownAt = make(map[string]int, len(c.Known.Objects))
		for i := range c.Known.Objects {
			s.known(c.Known.Objects[i])
			s.knownAt[c.Known.Objects[i].Path] = i
		}
	}
	s.quiet.L = &s.mu
	return s, nil
}

// read is a storage.Read on its way.
type read struct {
	*storage.Read
	validator Validator
	whole     bool // the server is known to give all of the object
	fill      bool

	rank    rank
	filling bool      // it counts among Storage.fills
	flying  int64     // what it takes of Storage.flying
	got     int       // bytes of Buf that are right
	since   time.Time // somebody waits for it; zero: nobody does
	history history
	tries   atomic.Int32 // that have failed
	late    atomic.Bool  // it was waited for in vain, and that was told
}

var (
	errEmptyBuffer = errors.New("a read needs a buffer")
	errClosed      = fmt.Errorf("the storage is closed: %w", fs.ErrClosed)
	errUnlisted    = fmt.Errorf("it is not the version that was listed: %w", storage.ErrChanged)
)

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) { s.submit(reads, false) }

// Fill implements storage.Filler.
func (s *Storage) Fill(reads []*storage.Read) { s.submit(reads, true) }

func (s *Storage) submit(reads []*storage.Read, fill bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay += len(reads)
	for _, given := range reads {
		r := &read{Read: given, fill: fill}
		if err := s.accept(r); err != nil {
			go s.finish(r, err)
			continue
		}
		s.push(r)
	}
	s.dispatch()
}

// accept gives the error of a read that is not made at all.
func (s *Storage) accept(r *read) error {
	size := int64(len(r.Buf))
	switch {
	case s.closed:
		return errClosed
	case size == 0:
		return errEmptyBuffer
	}
	var ok bool
	if r.validator, r.whole, ok = s.listed.get(r.Object); !ok {
		return errUnlisted
	}
	if r.OffsetBytes < 0 || size > r.Object.SizeBytes || r.OffsetBytes > r.Object.SizeBytes-size {
		return fmt.Errorf("the range is not inside of the object, which has %d bytes", r.Object.SizeBytes)
	}
	return nil
}

// push queues a read by its rank. mu is held.
func (s *Storage) push(r *read) {
	s.seq++
	r.rank.seq = s.seq
	s.ranked(r)
	heap.Push(&s.queue, r)
}

func (s *Storage) ranked(r *read) {
	r.rank.class, r.rank.due = s.plans.class(r.Object.Path, r.OffsetBytes, r.OffsetBytes+int64(len(r.Buf)), r.fill)
}

// Plan implements storage.Planner: it ranks the reads that wait for a slot.
func (s *Storage) Plan(reader uint64, wants []storage.Want) {
	spans := spansOf(wants)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans.set(reader, spans)
	for _, r := range s.queue {
		s.ranked(r)
	}
	heap.Init(&s.queue)
	s.dispatch()
}

// Done implements storage.Planner. Nothing is kept here for who wants it, so there is
// nothing to let go of.
func (s *Storage) Done(uint64, storage.Object, int64, int64) {}

// Forget implements storage.Planner.
func (s *Storage) Forget(reader uint64) { s.Plan(reader, nil) }

// dispatch begins what may begin. mu is held.
func (s *Storage) dispatch() {
	now := time.Now()
	for len(s.queue) > 0 {
		if wait := s.paused.Sub(now); wait > 0 && !s.closed {
			s.wake(wait)
			return
		}
		r := s.queue[0]
		size := int64(len(r.Buf) - r.got)
		if s.used >= s.slots.limit || s.used > 0 && s.flying+size > readBytes(s.config) {
			return
		}
		if r.rank.class == filling && !s.closed {
			if s.slots.resting(now) {
				s.wake(restAfterCut - now.Sub(s.slots.cut))
				return
			}
			if s.fills >= max(s.slots.limit/2, 1) {
				return
			}
		}
		heap.Pop(&s.queue)
		if r.filling = r.rank.class == filling; r.filling {
			s.fills++
		}
		r.flying = size
		s.used++
		s.flying += size
		go s.serve(r)
	}
}

// wake dispatches again after a while. mu is held.
func (s *Storage) wake(after time.Duration) {
	if s.waker != nil {
		return
	}
	s.waker = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waker = nil
		s.dispatch()
	})
}

// release gives the slot of a read back, and begins others.
func (s *Storage) release(r *read, bytes int64, f finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.slots.completed(now, s.used, len(s.queue), bytes)
	s.tired(now, f)
	if r.filling {
		s.fills--
	}
	s.used--
	s.flying -= r.flying
	s.dispatch()
}

// tired has the slots halved, and all new requests wait, after an answer that says so.
func (s *Storage) tired(now time.Time, f finding) {
	if f.kind != kindThrottled {
		return
	}
	s.slots.throttled(now)
	if until := now.Add(min(f.retryAfter, longestPause)); until.After(s.paused) {
		s.paused = until
	}
}

// throttled is tired for requests that have no slot.
func (s *Storage) throttled(f finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tired(time.Now(), f)
}

// later has a read tried again, at once or after a while. After Close it is not waited for
// that while: the read fails instead, and so does everything that waits, since what failed
// once may do so for hours.
func (s *Storage) later(r *read, wait time.Duration, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && wait > 0 {
		s.finishAll([]*read{r}, fmt.Errorf("%w; what failed last: %w", errClosed, why))
		s.endWaiting()
		s.finishAll(s.queue, errClosed)
		s.queue = nil
		return
	}
	if wait <= 0 {
		s.push(r)
		s.dispatch()
		return
	}
	s.waiting[r] = time.AfterFunc(wait, func() { s.again(r) })
}

func (s *Storage) again(r *read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.waiting[r]; !waits {
		return // Close was faster
	}
	delete(s.waiting, r)
	s.push(r)
	s.dispatch()
}

// endWaiting fails the reads that wait for another attempt. mu is held.
func (s *Storage) endWaiting() {
	for r, timer := range s.waiting {
		timer.Stop()
		go s.finish(r, errClosed)
	}
	clear(s.waiting)
}

func (s *Storage) finishAll(reads []*read, err error) {
	for _, r := range reads {
		go s.finish(r, err)
	}
}

// finish tells a read's submitter. No request of the read is under way.
func (s *Storage) finish(r *read, err error) {
	if err != nil && err != storage.ErrUnwanted {
		if !errors.Is(err, fs.ErrClosed) {
			s.stats.failed(r.Object.Path, err)
		}
		err = &storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err}
	}
	r.Read.Done(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
	if s.underWay == 0 {
		s.quiet.Broadcast()
	}
}

// Close waits for the reads that were submitted, each for as long as nothing fails:
// reads that wait for another attempt end with an error. Streams end.
func (s *Storage) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.endWaiting()
		s.dispatch()
	}
	for s.underWay > 0 {
		s.quiet.Wait()
	}
	if s.waker != nil {
		s.waker.Stop()
	}
	streams := s.streams
	s.streams = nil
	s.mu.Unlock()
	for st := range streams {
		st.end(errClosed)
	}
	s.closing.Do(func() { s.closeErr = s.source.Close() })
	return s.closeErr
}

// refresh renews what requests for an object are sent with.
func (s *Storage) refresh(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, refreshTime)
	defer cancel()
	s.source.Refresh(ctx, path)
}

// refreshTime is more than services of credentials take, also those that ask others.
const refreshTime = 30 * time.Second
