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
	// patience is how long somebody waits for a request until that is told. What passes sooner is
	// usual at services.
	patience = 3 * time.Second
	// tellEvery is how often it is told while it lasts.
	tellEvery = time.Minute
)

// Trouble is a request that somebody waits for in vain, or the end of such waiting.
type Trouble struct {
	For    string // what is waited for: a host, or credentials
	Object string // "" for a listing, and where it is not known yet
	Why    error  // nil: there is nothing to be said but For
	Tries  int    // that have failed
	// Waited is for how long somebody has, and Left for how long it goes on at most.
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

// trouble is what is told of requests that somebody waits for in vain, for all requests of an engine
// together, and that they go on.
type trouble struct {
	lasts atomic.Bool // it was told, and nothing yet of its end

	mu    sync.Mutex
	began time.Time // when somebody began to wait
	last  time.Time // when it was told last
	seen  time.Time // when somebody was last found to wait for so long
}

// waits is what somebody waits for, of which troubled and silent tell.
type waits struct {
	path          string // "" for a listing
	tries         int
	waited, limit time.Duration
}

// troubled tells that somebody waits, and why. It reports whether that is for long enough to be told,
// for answered.
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
			told.Why = nil // nobody was asked yet
		}
	}
	s.config.Trouble(told)
	return true
}

// service is whom requests are sent to.
func (s *Storage) service() string { return cmp.Or(s.config.Service, s.source.Name(), "the service") }

// before is what has to come before a request can be sent, "" for nothing.
func (s *Storage) before() string {
	if s.config.Before == nil {
		return ""
	}
	return s.config.Before()
}

// answered is called when a request has succeeded. It tells that, once for each trouble that was
// told, if the request was late, as troubled reported, or if there has been no trouble for as
// long as it would have been told once more: those that were late may have ended without an
// answer, or nobody may want them any more.
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

// silenceError says that nothing has come for so long.
type silenceError struct{ since time.Duration }

func (e *silenceError) Error() string {
	return fmt.Sprintf("no answer for %v", e.since.Round(time.Second))
}
