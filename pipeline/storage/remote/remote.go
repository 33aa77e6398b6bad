package remote

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// wholeBytes is the largest object that is read whole to get a range of it, if the server does not
// support ranges.
const wholeBytes = 8 << 20

// longestPause is how long one answer may stop all new requests. Services ask for up to an hour;
// waiting reads are retried sooner, one request at a time.
const longestPause = 30 * time.Second

// Storage is a storage.Storage that reads from a Source. Each read is one request, retried until it
// is right or can't be. Reads that wait for a slot are started by rank, which depends on Plan.
type Storage struct {
	source  Source
	config  Config
	began   time.Time // time of New, before any request
	listed  listed
	doubts  *doubts
	knownAt map[string]int // index in Config.Known.Objects by path
	stats   stats
	hedges  *hedges                            // nil: no hedges
	worked  atomic.Bool                        // the service has answered at least once
	omitted atomic.Pointer[[]storage.Omission] // by the last List

	toldLeft, toldTimes sync.Once // see tell
	trouble             trouble

	mu       sync.Mutex
	plans    plans
	queue    queue
	waiting  map[*read]*time.Timer // reads waiting for their next attempt
	slots    slots
	used     int   // slots in use
	fills    int   // slots used by fills
	flying   int64 // bytes requested and not yet received
	paused   time.Time
	waker    *time.Timer // calls dispatch again; nil: not set
	seq      uint64
	inflight storage.Inflight
	streams  map[*stream]struct{}
	closed   bool
	closing  sync.Once
	closeErr error
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Hints   = (*Storage)(nil)
)

// Caps implements storage.Storage.
func (s *Storage) Caps() storage.Caps {
	return storage.Caps{StatStable: s.StatStable, Omitted: s.Omitted, OpenSequential: s.OpenSequential, Fill: s.Fill, Hints: s}
}

// New returns an engine that reads from source, and closes it when it is closed. It sends nothing.
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
	return s, nil
}

// read is a storage.Read that is being processed.
type read struct {
	*storage.Read
	validator Validator
	whole     bool // the server is known to send the whole object
	fill      bool

	rank    rank
	filling bool      // counted in Storage.fills
	flying  int64     // its share of Storage.flying
	got     int       // leading bytes of Buf that are right
	since   time.Time // a reader waits for it since then; zero: none does
	history history
	tries   atomic.Int32 // failed attempts
	late    atomic.Bool  // Trouble was reported for it
}

var (
	errUnlisted = fmt.Errorf("it is not the version that was listed: %w", storage.ErrChanged)
)

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) { s.submit(reads, false) }

// Fill implements storage.Caps.
func (s *Storage) Fill(reads []*storage.Read) { s.submit(reads, true) }

func (s *Storage) submit(reads []*storage.Read, fill bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inflight.Begin(len(reads))
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

// accept returns an error for a read that can't be attempted at all.
func (s *Storage) accept(r *read) error {
	if s.closed {
		return storage.ErrClosed
	}
	var ok bool
	if r.validator, r.whole, ok = s.listed.get(r.Object); !ok {
		return errUnlisted
	}
	return r.Check()
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

// Want implements storage.Hints: it ranks the reads that wait for a slot.
func (s *Storage) Want(reader uint64, blocks []storage.Block) {
	spans := spansOf(blocks)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans.set(reader, spans)
	for _, r := range s.queue {
		s.ranked(r)
	}
	heap.Init(&s.queue)
	s.dispatch()
}

// Passed implements storage.Hints. Nothing is stored per block here, so there is nothing to release.
func (s *Storage) Passed(uint64, []storage.Block) {}

// Drop implements storage.Hints.
func (s *Storage) Drop(reader uint64) { s.Want(reader, nil) }

// Use implements storage.Hints.
func (s *Storage) Use() storage.HintUse { return storage.HintUse{} }

// SetShare implements storage.Hints.
func (s *Storage) SetShare(int64) {}

// dispatch starts the reads that may start. mu is held.
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

// wake calls dispatch after a while. mu is held.
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

// release frees the slot of a read, and starts others.
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

// tired halves the slots and pauses all new requests, after an answer that means that the service
// is overloaded.
func (s *Storage) tired(now time.Time, f finding) {
	if f.kind != kindThrottled {
		return
	}
	s.slots.throttled(now)
	if until := now.Add(min(f.retryAfter, longestPause)); until.After(s.paused) {
		s.paused = until
	}
}

// throttled is tired for requests that use no slot.
func (s *Storage) throttled(f finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tired(time.Now(), f)
}

// later retries a read, at once or after a wait. After Close it does not wait: the read fails
// instead, and so does everything that waits, because retries could go on for hours.
func (s *Storage) later(r *read, wait time.Duration, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && wait > 0 {
		s.finishAll([]*read{r}, fmt.Errorf("%w; what failed last: %w", storage.ErrClosed, why))
		s.endWaiting()
		s.finishAll(s.queue, storage.ErrClosed)
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
		return // Close came first
	}
	delete(s.waiting, r)
	s.push(r)
	s.dispatch()
}

// endWaiting fails the reads that wait for another attempt. mu is held.
func (s *Storage) endWaiting() {
	for r, timer := range s.waiting {
		timer.Stop()
		go s.finish(r, storage.ErrClosed)
	}
	clear(s.waiting)
}

func (s *Storage) finishAll(reads []*read, err error) {
	for _, r := range reads {
		go s.finish(r, err)
	}
}

// finish reports the result to a read's submitter. None of the read's requests is running.
func (s *Storage) finish(r *read, err error) {
	if err != nil && err != storage.ErrUnwanted {
		if !errors.Is(err, fs.ErrClosed) {
			s.stats.failed(r.Object.Path, err)
		}
	}
	r.Read.Done(r.Failure(err))
	s.inflight.End()
}

// Close waits for submitted reads as long as their requests succeed. Reads that wait for another
// attempt fail, and streams end.
func (s *Storage) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.endWaiting()
		s.dispatch()
	}
	s.mu.Unlock()
	s.inflight.Close()
	s.mu.Lock()
	if s.waker != nil {
		s.waker.Stop()
	}
	streams := s.streams
	s.streams = nil
	s.mu.Unlock()
	for st := range streams {
		st.end(storage.ErrClosed)
	}
	s.closing.Do(func() { s.closeErr = s.source.Close() })
	return s.closeErr
}

// refresh renews the credentials or redirects used for requests for an object.
func (s *Storage) refresh(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, refreshTime)
	defer cancel()
	s.source.Refresh(ctx, path)
}

// refreshTime is longer than credential services take, even if they ask other services.
const refreshTime = 30 * time.Second

// Config configures an engine. None of its settings changes which bytes are read.
type Config struct {
	// Connections is the most requests that may be running at a time.
	Connections int
	// InFlightBytes bounds the total size of running requests; a single request may be larger.
	InFlightBytes int64
	// ReadTimeout is how long a read that a reader waits for is retried.
	ReadTimeout time.Duration
	// FirstByteTimeout is how long to wait for the first byte of an answer's body.
	FirstByteTimeout time.Duration
	// At least SlowBytes must arrive in every SlowTime after that.
	SlowBytes int64
	SlowTime  time.Duration
	// Hedge enables a second request for reads that take far longer than usual.
	Hedge bool
	// Unversioned accepts objects for which the service has no versions: objects of the same size
	// are considered equal.
	Unversioned bool
	// GetDollars and ListDollars are the prices of one request.
	GetDollars, ListDollars float64
	// FirstContact is how long to keep trying to reach a host that has never answered.
	FirstContact time.Duration
	// Known, if not nil, is an earlier listing to use because the service can't be reached.
	Known *Known
	// Log receives, once each, what a listing has left out and warnings about its versions. It may
	// be nil.
	Log *slog.Logger
	// Trouble is called when a reader has waited for a request for some seconds, repeatedly while
	// that lasts, and when it is over. Calls don't overlap. It may be nil.
	Trouble func(Trouble)
	// Service is the name of the service in Trouble; "" means the source's name.
	Service string
	// Before returns a description of what must complete before requests can be sent, such as
	// getting credentials; "" for nothing. It may be nil.
	Before func() string
}

// DefaultConfig returns the defaults. It has 128 connections: at 25 ms of latency and 3 ms of
// transfer, 128 GETs of 256 KiB are 1.1 GB/s. 95 % of S3's requests return the first byte within
// 200 ms, and then 90 MB/s; the bounds are far below that.
func DefaultConfig() Config {
	return Config{
		Connections: 128, InFlightBytes: 256 << 20, ReadTimeout: 5 * time.Minute,
		FirstContact: firstContact, FirstByteTimeout: 10 * time.Second, SlowBytes: 40 << 10, SlowTime: 10 * time.Second,
	}
}

// MaxConnections bounds Config.Connections: each takes a descriptor and about 100 KiB.
const MaxConnections = 1024

// Validate reports all problems at once.
func (c Config) Validate() error {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Connections < 1 || c.Connections > MaxConnections {
		problem("connections (%d) must be between 1 and %d", c.Connections, MaxConnections)
	}
	if c.InFlightBytes < 1 {
		problem("bytes in flight (%d) must be above 0", c.InFlightBytes)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"read timeout", c.ReadTimeout}, {"first contact", c.FirstContact}, {"first byte timeout", c.FirstByteTimeout}, {"slow time", c.SlowTime}} {
		if d.d <= 0 {
			problem("%s (%v) must be above 0", d.name, d.d)
		}
	}
	if c.SlowBytes < 0 {
		problem("slow bytes (%d) must be >= 0", c.SlowBytes)
	}
	if c.GetDollars < 0 || c.ListDollars < 0 {
		problem("prices (%v, %v) must be >= 0", c.GetDollars, c.ListDollars)
	}
	return errors.Join(errs...)
}
