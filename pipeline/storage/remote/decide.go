package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
