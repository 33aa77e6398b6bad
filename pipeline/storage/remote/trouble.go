package remote

import (
	"fmt"
	"sync"
	"time"
)

const (
	// patience is how long somebody waits for a request that fails until that is logged.
	// What passes sooner is usual at services.
	patience = 5 * time.Second
	// tellEvery is how often that is logged while it lasts.
	tellEvery = time.Minute
)

// trouble logs requests that somebody waits for in vain, for all requests of an engine
// together, and that they go on.
type trouble struct {
	mu    sync.Mutex
	last  time.Time // of the last warning
	lasts bool      // it was warned of, and not said yet that it is over
}

// troubled logs that somebody has waited for so long for an object, "" for a listing. It
// reports whether that is long enough for a warning: then recovered is to be called if the
// request succeeds.
func (s *Storage) troubled(path string, waited time.Duration, err error) bool {
	if s.config.Log == nil || waited < patience {
		return false
	}
	t := &s.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.last.IsZero() && now.Sub(t.last) < tellEvery {
		return true
	}
	t.last, t.lasts = now, true
	args := []any{"waited", waited.Round(time.Second).String(), "error", Clean(err)}
	if path != "" {
		args = append([]any{"object", path}, args...)
	}
	if name := s.source.Name(); name != "" {
		args = append([]any{"dataset", name}, args...)
	}
	s.config.Log.Warn(fmt.Sprintf("the service fails, and is asked again for %v", s.config.ReadTimeout), args...)
	return true
}

// recovered logs that a request has succeeded that was waited for so long, once for each
// trouble that was warned of.
func (s *Storage) recovered(waited time.Duration) {
	t := &s.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lasts {
		t.lasts = false
		s.config.Log.Warn("the service answers again", "waited", waited.Round(time.Second).String())
	}
}
