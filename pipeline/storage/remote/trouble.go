package remote

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long a reader waits for a request before it is reported. Shorter delays are
	// usual.
	patience = 3 * time.Second
	// tellEvery is how often it is reported while it lasts.
	tellEvery = time.Minute
)

// Trouble reports a request that a reader waits for in vain, or the end of such waiting.
type Trouble struct {
	For    string // what the reader waits for: a host, or credentials
	Object string // "" for a listing, or if not known yet
	Why    error  // nil: there is nothing to report but For
	Tries  int    // failed attempts
	// Waited is how long the reader has waited, and Left how much longer it waits at most.
	Waited, Left time.Duration
	Over         bool // requests are answered again
}

func (t Trouble) String() string {
	if t.Over {
		return fmt.Sprintf("%s answers again, after %v", t.For, t.Waited.Round(time.Second))
	}
	text := "waiting for " + t.For
	if t.Why != nil {
		text += ": " + Clean(t.Why).Error()
	}
	tries := ""
	if t.Tries > 0 {
		tries = fmt.Sprintf("%d tries, ", t.Tries)
	}
	if t.Tries == 1 {
		tries = "1 try, "
	}
	return text + fmt.Sprintf(" (%s%v left)", tries, t.Left.Round(time.Second))
}

// trouble is the state of these reports, for all requests of an engine together.
type trouble struct {
	lasts atomic.Bool // it was reported, and its end was not yet

	mu    sync.Mutex
	began time.Time // when the first reader began to wait
	last  time.Time // time of the last report
	seen  time.Time // when a reader was last found to have waited this long
}

// waits describes what a reader waits for, for troubled.
type waits struct {
	path          string // "" for a listing
	tries         int
	waited, limit time.Duration
}

// troubled reports that a reader waits, and why. It returns whether the wait is long enough to be
// reported, for answered.
func (s *Storage) troubled(w waits, why error) bool {
	if s.config.Trouble == nil || w.waited < patience {
		return false
	}
	t := &s.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.seen = now
	if !t.last.IsZero() && now.Sub(t.last) < tellEvery {
		return true
	}
	if t.last = now; !t.lasts.Swap(true) {
		t.began = now.Add(-w.waited)
	}
	told := Trouble{For: s.service(), Object: w.path, Why: why, Tries: w.tries, Waited: w.waited, Left: max(w.limit-w.waited, 0)}
	if before := s.before(); before != "" {
		told.For = before
		if silence := (*silenceError)(nil); errors.As(why, &silence) {
			told.Why = nil // no request was sent yet
		}
	}
	s.config.Trouble(told)
	return true
}

// service returns the name of the service that requests are sent to.
func (s *Storage) service() string { return cmp.Or(s.config.Service, s.source.Name(), "the service") }

// before returns what must complete before a request can be sent, or "" for nothing.
func (s *Storage) before() string {
	if s.config.Before == nil {
		return ""
	}
	return s.config.Before()
}

// answered is called when a request has succeeded. It reports that, once for each reported trouble,
// if the request was late according to troubled, or if there has been no trouble for tellEvery:
// late requests may have ended without an answer, or may not be wanted any more.
func (s *Storage) answered(late bool) {
	t := &s.trouble
	if !t.lasts.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lasts.Load() && (late || time.Since(t.seen) >= tellEvery) {
		t.lasts.Store(false)
		s.config.Trouble(Trouble{For: s.service(), Over: true, Waited: time.Since(t.began)})
	}
}

// silenceError means that nothing has arrived for that long.
type silenceError struct{ since time.Duration }

func (e *silenceError) Error() string {
	return fmt.Sprintf("no answer for %v", e.since.Round(time.Second))
}
