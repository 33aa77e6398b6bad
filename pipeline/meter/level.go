package meter

import (
	"sync"
	"sync/atomic"
)

// Level counts goroutines at work: their current number, and the sum of their working times, which
// never decreases. The zero value is ready for use.
type Level struct {
	mu    sync.Mutex // held for a few additions
	n     int64
	since int64 // when n last changed or was read
	sum   int64 // in nanoseconds, until since
}

// Begin counts one more goroutine from now on.
func (l *Level) Begin(now int64) { l.change(1, now) }

// End counts one goroutine fewer from now on.
func (l *Level) End(now int64) { l.change(-1, now) }

// Add adds time that was measured separately.
func (l *Level) Add(nanos int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum += nanos
}

func (l *Level) change(by, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	l.n += by
}

// advance adds the working time until now. If now is in the past, because another goroutine read
// the clock later, it does nothing. It is called with mu held.
func (l *Level) advance(now int64) {
	if now > l.since {
		l.sum += l.n * (now - l.since)
		l.since = now
	}
}

// Sum returns the sum of the times until now.
func (l *Level) Sum(now int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n > 0 {
		l.advance(now)
	}
	return l.sum
}

// Busy counts things in flight, and the time in which there are any. It reads the clock only when
// the first one begins and the last one ends. The zero value is ready for use.
type Busy struct {
	n atomic.Int64
	// any has one goroutine while n is above 0. If things begin and end at the same time, their
	// calls may arrive in another order; it then briefly has two, or none.
	any Level
}

// Begin adds n > 0 things.
func (b *Busy) Begin(n int) {
	if b.n.Add(int64(n)) == int64(n) {
		b.any.Begin(Now())
	}
}

// End removes one.
func (b *Busy) End() {
	if b.n.Add(-1) == 0 {
		b.any.End(Now())
	}
}

// Any reports whether there are any.
func (b *Busy) Any() bool { return b.n.Load() > 0 }

// Sum returns the time with any until now, and their current number.
func (b *Busy) Sum(now int64) (nanos, n int64) { return b.any.Sum(now), b.n.Load() }
