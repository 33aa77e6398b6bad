package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Stats is a snapshot for status.json. Numbers are since New, except Slots, InUse, Waiting and
// InRetry, which are current.
type Stats struct {
	Requests     map[string]uint64 `json:"requests"` // by status; "none": no answer
	Bytes        uint64            `json:"bytes"`    // of bodies, including discarded ones
	FirstByte    Latency           `json:"first_byte"`
	Slots        int               `json:"slots"`
	InUse        int               `json:"slots_in_use"`
	Waiting      int               `json:"waiting"` // reads waiting for a slot
	InRetry      int               `json:"in_retry"`
	Throttled    uint64            `json:"throttled"`
	Retries      map[string]uint64 `json:"retries"` // by reason
	Hedges       uint64            `json:"hedges"`
	HedgesWon    uint64            `json:"hedges_won"`
	PassedOver   uint64            `json:"passed_over"` // keys in listings that are not paths
	PriceDollars float64           `json:"price_dollars"`
	ListedAt     time.Time         `json:"listed_at,omitzero"`   // when an earlier run listed, if the service could not be reached at the start
	LastError    string            `json:"last_error,omitempty"` // of a read that failed, or is retried
}

// Latency is the time to the first byte of the last answers, in seconds.
type Latency struct {
	P50 float64 `json:"p50_seconds"`
	P95 float64 `json:"p95_seconds"`
	P99 float64 `json:"p99_seconds"`
}

// stats counts. It is safe for concurrent use.
type stats struct {
	bytes atomic.Uint64

	mu        sync.Mutex
	requests  map[int]uint64
	lists     uint64
	retries   [kinds]uint64
	hedges    uint64
	hedgesWon uint64
	passed    uint64
	lastError string
	first     [sizeClasses]window // first bytes of answers
	whole     [sizeClasses]window // whole answers, from the request to the last byte
}

// asked counts an answer; status 0 counts a request without an answer.
func (s *stats) asked(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[int]uint64{}
	}
	if status < 100 || status > 599 {
		status = 0
	}
	s.requests[status]++
}

func (s *stats) askedList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
}

func (s *stats) retried(path string, f finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retries[f.kind]++
	s.lastError = path + ": " + f.err.Error()
}

func (s *stats) failed(path string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastError = path + ": " + err.Error()
}

func (s *stats) passedOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed++
}

func (s *stats) firstByte(size int, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first[sizeClass(size)].add(after)
}

// answered records a correct answer.
func (s *stats) answered(size int, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole[sizeClass(size)].add(after)
}

// Latencies are recorded by the size of reads: services answer large ranges later.
const sizeClasses = 3

func sizeClass(size int) int {
	switch {
	case size <= 512<<10:
		return 0
	case size <= 4<<20:
		return 1
	}
	return 2
}

// window holds the last latencies.
type window struct {
	last [512]time.Duration
	n    int // number of latencies added
}

func (w *window) add(d time.Duration) {
	w.last[w.n%len(w.last)] = d
	w.n++
}

func (w *window) appendTo(all []time.Duration) []time.Duration {
	return append(all, w.last[:min(w.n, len(w.last))]...)
}

// quantile returns the q-th quantile of sorted values, or 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Stats returns a snapshot.
func (s *Storage) Stats() Stats {
	out := s.stats.snapshot(s.config)
	if k := s.config.Known; k != nil {
		out.ListedAt = k.Asked
	}
	out.Bytes = s.stats.bytes.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Slots, out.InUse, out.Waiting, out.InRetry = s.slots.limit, s.used, len(s.queue), len(s.waiting)
	return out
}

func (s *stats) snapshot(c Config) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{
		Requests: map[string]uint64{}, Retries: map[string]uint64{}, Hedges: s.hedges, HedgesWon: s.hedgesWon,
		Throttled: s.retries[kindThrottled], PassedOver: s.passed, LastError: s.lastError,
	}
	total := uint64(0)
	for status, n := range s.requests {
		total += n
		if status == 0 {
			out.Requests["none"] = n
			continue
		}
		out.Requests[strconv.Itoa(status)] = n
	}
	out.PriceDollars = float64(s.lists)*c.ListDollars + float64(total-s.lists)*c.GetDollars
	for k, n := range s.retries {
		if n > 0 {
			out.Retries[names[k]] = n
		}
	}
	var all []time.Duration
	for i := range s.first {
		all = s.first[i].appendTo(all)
	}
	slices.Sort(all)
	out.FirstByte = Latency{P50: quantile(all, 0.5).Seconds(), P95: quantile(all, 0.95).Seconds(), P99: quantile(all, 0.99).Seconds()}
	return out
}

func (s *stats) hedge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hedges++
}

func (s *stats) wonHedge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hedgesWon++
}

var (
	errSlow = errors.New("the answer came too slowly")
)

// watch ends a request whose answer does not arrive: none of its body within FirstByteTimeout, or
// later too little of it within SlowTime. Time in which the body is not being read does not count.
type watch struct {
	config Config
	silent func()          // called once if nothing arrives for as long as patience; nil: not needed
	ctx    context.Context // for the one request
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer
	resumed time.Time     // the timer has been running since then; zero: it is stopped
	left    time.Duration // of the current interval, when resumed
	first   bool          // something has arrived
	came    [slowParts]int64
	parts   int // parts of SlowTime that have passed since the first byte
}

// slowParts is the number of parts into which SlowTime is divided. So a body that stalls is noticed
// at the latest one part after SlowTime, whatever came before.
const slowParts = 4

// watching returns a context for one request, and the watch that ends it. silent is called once if
// nothing arrives.
func watching(ctx context.Context, c Config, silent func()) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{config: c, silent: silent, ctx: ctx, cancel: cancel, left: c.FirstByteTimeout, resumed: time.Now()}
	if w.silent != nil {
		w.left = min(w.left, patience)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.left, w.look)
	return ctx, w
}

// look is called when the timer has expired.
func (w *watch) look() {
	w.mu.Lock()
	var silent func()
	defer func() {
		w.mu.Unlock()
		if silent != nil {
			silent()
		}
	}()
	switch {
	case w.resumed.IsZero(): // it has just been stopped
	case time.Since(w.resumed) < w.left: // stopped and started again
	case !w.first && w.silent != nil && w.config.FirstByteTimeout > patience:
		silent, w.silent = w.silent, nil
		w.left, w.resumed = w.config.FirstByteTimeout-patience, time.Now()
		w.timer.Reset(w.left)
	case !w.first:
		w.cancel(&silenceError{w.config.FirstByteTimeout})
	default:
		came := int64(0)
		for _, n := range w.came {
			came += n
		}
		if w.parts++; w.parts >= slowParts && came < w.config.SlowBytes {
			w.cancel(fmt.Errorf("%w (%d bytes in %v)", errSlow, came, w.config.SlowTime))
			return
		}
		w.begin()
	}
}

// begin starts another part of SlowTime.
func (w *watch) begin() {
	w.came[w.parts%slowParts] = 0
	w.left, w.resumed = w.config.SlowTime/slowParts, time.Now()
	w.timer.Reset(w.left)
}

// progress records n bytes of the body, while it is being read.
func (w *watch) progress(n int) {
	if n <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.first && !w.resumed.IsZero() {
		w.begin()
	}
	w.first = true
	w.came[w.parts%slowParts] += int64(n)
}

// pause begins a time in which the body is not being read; resume ends it.
func (w *watch) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resumed.IsZero() {
		return
	}
	w.timer.Stop()
	w.left = max(w.left-time.Since(w.resumed), 0)
	w.resumed = time.Time{}
}

func (w *watch) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumed = time.Now()
	w.timer.Reset(w.left)
}

// why returns the reason for which the request was ended, or nil if it was not.
func (w *watch) why() error { return context.Cause(w.ctx) }

// end releases the context.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.resumed = time.Time{}
	w.cancel(nil)
}
