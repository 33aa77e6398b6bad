package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	errSlow = errors.New("the answer came too slowly")
)

// watch ends a request whose answer does not come: nothing of its body for one time, or
// too little of it over another. Time in which nobody reads the body does not count.
type watch struct {
	config Config
	silent func()          // is called once where nothing comes for as long as patience; nil: nobody wants to know
	ctx    context.Context // of the one request
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer
	resumed time.Time     // the timer runs since then; zero: it does not
	left    time.Duration // of the time that is looked at, when resumed
	first   bool          // something has come
	came    [slowParts]int64
	parts   int // of SlowTime that have passed since the first byte
}

// slowParts is in how many parts SlowTime is looked at. So a body that stalls is seen to
// after one part more than SlowTime, whatever came before.
const slowParts = 4

// watching gives a context for one request, and what ends it. silent is told once that nothing comes.
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

// look is called when the time of the timer has passed.
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
	case w.resumed.IsZero(): // it was stopped just now
	case time.Since(w.resumed) < w.left: // and set anew
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

// begin looks at another part of SlowTime from now on.
func (w *watch) begin() {
	w.came[w.parts%slowParts] = 0
	w.left, w.resumed = w.config.SlowTime/slowParts, time.Now()
	w.timer.Reset(w.left)
}

// progress is told of bytes of the body, while it is read.
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

// pause begins a time in which nobody reads, which resume ends.
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

// why is the reason that the request was ended for, nil if it was not.
func (w *watch) why() error { return context.Cause(w.ctx) }

// end lets go of the context.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.resumed = time.Time{}
	w.cancel(nil)
}
