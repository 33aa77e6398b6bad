package remote

import (
	"fmt"
	"sync"
	"sync/atomic"
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
	lasts atomic.Bool // it was warned of, and nothing has been logged yet of its end

	mu    sync.Mutex
	began time.Time // when somebody began to wait
	last  time.Time // of the last warning
	seen  time.Time // when somebody was last found to wait for so long
}

// troubled logs that somebody has waited for so long for an object, "" for a listing. It
// reports whether that is long enough for a warning, for answered.
func (s *Storage) troubled(path string, waited time.Duration, err error) bool {
	if s.config.Log == nil || waited < patience {
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
		t.began = now.Add(-waited)
	}
	args := []any{"waited", waited.Round(time.Second).String(), "error", Clean(err)}
	if path != "" {
		args = append([]any{"object", path}, args...)
	}
	if name := s.source.Name(); name != "" {
		args = append([]any{"dataset", name}, args...)
	}
	s.config.Log.Warn(fmt.Sprintf("a request fails, and is made again for up to %v", s.config.ReadTimeout), args...)
	return true
}

// answered is called when a request has succeeded. It logs that, once for each trouble that was
// warned of, if the request was late, as troubled reported, or if there has been no trouble for as
// long as it would have been warned of once more: those that were late may have ended without an
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
		s.config.Log.Warn("the service answers again", "failed_for", time.Since(t.began).Round(time.Second).String())
	}
}
