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
