package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// resumeBytes is the least that must have arrived of a broken read for it to be resumed there.
// Below that, requesting the bytes again costs less.
const resumeBytes = 64 << 10

// serve makes one attempt at a read, which has a slot.
func (s *Storage) serve(r *read) {
	if r.Wanted != nil && !r.Wanted() {
		s.release(r, 0, finding{})
		s.finish(r, storage.ErrUnwanted)
		return
	}
	s.limited(r)
	n, f := s.attempt(r)
	s.release(r, int64(n), f)
	if f.kind == kindGood {
		if r.history.noRange > 0 && !r.whole {
			s.listed.setWhole(r.Object)
		}
		s.answered(r.late.Load())
		s.finish(r, nil)
		return
	}
	r.resume(n)
	if f.doubtful {
		f = s.reconsider(context.Background(), r.Object, r.validator, f)
		if v, _, ok := s.listed.get(r.Object); ok {
			r.validator = v
		}
	}
	waited, limit := s.limited(r)
	next := r.history.next(f, waited, limit, rand.Float64())
	if next.err != nil {
		s.finish(r, s.placed(next.err))
		return
	}
	r.tries.Add(1)
	s.stats.retried(r.Object.Path, f)
	s.waitedFor(r, waited, limit, f.err)
	if next.refresh {
		s.refresh(context.Background(), r.Object.Path)
	}
	s.later(r, next.wait, s.placed(f.err))
}

// waitedFor reports that a reader is waiting for a read, if one is.
func (s *Storage) waitedFor(r *read, waited, limit time.Duration, why error) {
	if s.troubled(waits{r.Object.Path, int(r.tries.Load()), waited, limit}, why) {
		r.late.Store(true)
	}
}

// silent returns the function to call if nothing arrives for a read.
func (r *read) silent(s *Storage) func() {
	began := time.Now()
	return func() {
		waited, limit := s.limited(r)
		s.waitedFor(r, waited, limit, &silenceError{time.Since(began)})
	}
}

// resume keeps what has arrived of a read, if that is enough.
func (r *read) resume(n int) {
	if r.got+n < resumeBytes {
		r.got = 0
		return
	}
	if r.got += n; n > 0 {
		r.history.failed, r.history.wrong = 0, 0
	}
}

// limited returns how long a reader has waited for a read, and how long it may; no limit if no
// reader waits.
func (s *Storage) limited(r *read) (waited, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ranked(r); r.rank.class != demanded {
		r.since = time.Time{}
		return 0, 0
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	return time.Since(r.since), s.config.ReadTimeout
}

// placed adds the name of the source to an error.
func (s *Storage) placed(err error) error { return fmt.Errorf("%s: %w", s.source.Name(), err) }

// attempt makes the request, or the requests, of one attempt.
func (s *Storage) attempt(r *read) (n int, f finding) {
	q := r.question()
	p := r.Buf[r.got:]
	if s.hedges == nil {
		return s.exchange(context.Background(), r.Object.Path, q, p, r.silent(s), nil)
	}
	return s.race(r, q, p)
}

// question returns the request for the missing part of a read.
func (r *read) question() question {
	q := question{begin: r.OffsetBytes + int64(r.got), end: r.OffsetBytes + int64(len(r.Buf)), size: r.Object.SizeBytes, validator: r.validator}
	q.plain = q.begin == 0 && q.end == q.size
	q.whole = q.size <= wholeBytes && (r.whole || r.history.noRange > 0)
	return q
}

// exchange makes one request and fills p with [q.begin, q.end). n bytes of p are right even if the
// finding is not good. seen, if not nil, is called with the number of bytes of the body as they
// arrive; these are p's bytes, in order, if q requests nothing else. silent, if not nil, is called
// if nothing arrives. p is not used any more after exchange has returned.
func (s *Storage) exchange(ctx context.Context, path string, q question, p []byte, silent func(), seen func(n int)) (n int, f finding) {
	began := time.Now()
	ctx, w := watching(ctx, s.config, silent)
	defer w.end()
	a, f := s.ask(ctx, path, q)
	if f.kind != kindGood {
		return 0, f
	}
	defer func() { _ = a.Body.Close() }()
	body := &watched{body: a.Body, watch: w, seen: seen, first: func() { s.stats.firstByte(len(p), time.Since(began)) }}
	n, f = receive(body, p, f.skip, f.rest)
	s.stats.bytes.Add(uint64(body.came))
	if f.kind == kindGood {
		s.stats.answered(len(p), time.Since(began))
	}
	if f.kind == kindAgain {
		f.err = s.cause(ctx, f.err)
	}
	return n, f
}

// ask makes one request and checks the head of its answer, whose body is open if the finding is
// good.
func (s *Storage) ask(ctx context.Context, path string, q question) (Answer, finding) {
	off, n := q.begin, q.end-q.begin
	if q.end == q.size && (q.plain || q.open) {
		n = -1
	}
	a, err := s.source.Open(ctx, path, q.validator, off, n)
	if err != nil {
		s.stats.asked(0)
		return Answer{}, ofError(s.cause(ctx, err))
	}
	s.worked.Store(true)
	s.stats.asked(a.Status)
	f := check(a, q)
	if f.kind != kindGood {
		_ = a.Body.Close() // unread, which closes the connection if anything is left
	}
	return a, f
}

// cause returns why a request failed: the watch's reason if the watch has ended it, with what had
// to complete before it, if that did not.
func (s *Storage) cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		why := context.Cause(ctx)
		if silence, ok := errors.AsType[*silenceError](why); ok && s.before() != "" {
			return fmt.Errorf("%w: %s did not come", silence, s.before())
		}
		return why
	}
	return Clean(err)
}

// watched reports the bytes of a body to a watch.
type watched struct {
	body  io.Reader
	watch *watch
	first func()      // nil: it has been called
	seen  func(n int) // nil: not needed
	came  int64
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	w.came += int64(n)
	w.watch.progress(n)
	if n > 0 && w.first != nil {
		w.first()
		w.first = nil
	}
	if n > 0 && w.seen != nil {
		w.seen(n)
	}
	return n, err
}

// receive fills p from a body that has exactly skip bytes before it and rest bytes after it.
func receive(body io.Reader, p []byte, skip, rest int64) (n int, f finding) {
	if _, err := io.CopyN(io.Discard, body, skip); err != nil {
		return 0, broken(0, len(p), err)
	}
	n, err := io.ReadFull(body, p)
	if err != nil {
		return n, broken(n, len(p), err)
	}
	if _, err := io.CopyN(io.Discard, body, rest); err != nil {
		return 0, broken(n, len(p), err)
	}
	var more [1]byte
	switch _, err := io.ReadFull(body, more[:]); {
	case err == nil:
		return 0, wrong("the answer has more than the %d bytes that it announces", skip+int64(n)+rest)
	case !errors.Is(err, io.EOF):
		return 0, broken(n, len(p), err)
	}
	return n, finding{}
}

// broken returns the finding for a body that ended too early.
func broken(n, of int, err error) finding {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the connection was closed")
	}
	return finding{kind: kindAgain, err: fmt.Errorf("the answer broke after %d of %d bytes: %w", n, of, Clean(err))}
}

// Waits before another attempt are drawn between 0 and a bound ("full jitter"), so that requests
// which failed together don't return together. The bound doubles with each attempt. It starts
// higher for an overloaded service.
const (
	firstWait          = 50 * time.Millisecond
	firstThrottledWait = 500 * time.Millisecond
	longestWait        = 5 * time.Second
	// longestLateWait is the longest wait before checking again for credentials that are late: new
	// ones are noticed up to one wait after they appear.
	longestLateWait = 2 * time.Second
)

// backoff returns the wait before attempt n + 1 (n from 0) for a u in [0, 1).
func backoff(n int, first time.Duration, u float64) time.Duration {
	bound := longestWait
	if n < 16 { // 2¹⁶ × 50 ms is far above the bound, and far from overflow
		bound = min(bound, first<<n)
	}
	return time.Duration(u * float64(bound))
}

// Limits on retries of failures that do not pass on their own.
const (
	maxRefreshes = 2 // if renewed credentials fail as well, they are invalid
	maxMoves     = 1
	maxWrong     = 2 // a proxy's mishap does not happen three times in a row
	maxNoRanges  = 1
)

// history is what has happened to one read so far.
type history struct {
	failed  int // since the last byte that was kept
	refresh int
	moves   int
	wrong   int // likewise
	noRange int
}

// step is what to do next.
type step struct {
	err     error // not nil: the read has failed permanently
	refresh bool  // call Source.Refresh first
	wait    time.Duration
}

// next decides what to do after a finding that is not good. Reads that a reader waits for have a
// limit: they fail once they have been retried for that long; 0 means no limit. u is a random
// number in [0, 1).
func (h *history) next(f finding, waited, limit time.Duration, u float64) step {
	s := step{wait: backoff(h.failed, firstWait, u)}
	final := false
	switch f.kind {
	case kindAgain:
	case kindThrottled:
		s.wait = max(backoff(h.failed, firstThrottledWait, u), f.retryAfter)
	case kindRefresh:
		h.refresh++
		s.refresh, final = true, h.refresh > maxRefreshes && !f.late
		switch {
		case h.refresh == 1:
			s.wait = 0
		case f.late:
			s.wait = min(s.wait, longestLateWait)
		}
	case kindElsewhere:
		h.moves++
		s.refresh, s.wait, final = true, 0, h.moves > maxMoves
	case kindWrong:
		if h.wrong++; h.wrong > maxWrong {
			return step{err: fmt.Errorf("%w; so it was %d times: look at the server, and at proxies before it", f.err, h.wrong)}
		}
	case kindNoRanges:
		h.noRange++
		s.wait, final = 0, h.noRange > maxNoRanges
	default:
		final = true
	}
	h.failed++
	if final {
		return step{err: f.err}
	}
	if limit > 0 && waited+s.wait >= limit {
		return step{err: fmt.Errorf("it has failed for %v, the last time with: %w", waited.Round(time.Second), f.err)}
	}
	return s
}

// version returns the version of a listed object in the form that the rest of lsiofs compares.
// Times are whole seconds, because listings and HEADs of one service differ below that.
//
// If the validator may consist of time and size, or there is none, two resources may have the same
// one: then Listed.Variant, which distinguishes them, becomes part of the version.
func version(l Listed) storage.Version {
	v := storage.Version{Inode: fingerprint(l.Validator)}
	if l.Variant != "" && (l.Validator == "" || maybeTime(l.Validator)) {
		v.Inode = fingerprint(l.Validator + Validator("\n"+l.Variant))
	}
	if !l.Modified.IsZero() {
		v.ModTimeNanos = l.Modified.Unix() * int64(time.Second)
	}
	return v
}

// refusal returns the error of an object that can't be read reliably, or nil.
func refusal(l Listed, unversioned bool) error {
	switch {
	case l.SizeBytes < 0:
		return errors.New("the service does not say how large it is (Content-Length): serve it from one that does")
	case len(l.Validator) > maxValidatorBytes:
		return fmt.Errorf("its ETag has %d bytes", len(l.Validator))
	case l.Validator == "" && !unversioned:
		return errors.New("the service does not say which version it is of, neither by a strong ETag nor by Last-Modified: --unversioned accepts its size alone")
	}
	return nil
}

// final reports whether an error of List or Head would be the same the next time.
func final(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNoListing) || refused(err)
}
