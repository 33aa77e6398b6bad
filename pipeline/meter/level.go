package meter

import (
	"sync"
	"sync/atomic"
)

// Level counts goroutines that are at work: how many there are now, and the sum
// of the times that each has been, which never goes back. The zero value is ready.
type Level struct {
	mu    sync.Mutex // held for some additions
	n     int64
	since int64 // when n changed last, or was looked at
	sum   int64 // nanoseconds, until then
}

// Begin counts one more at now.
func (l *Level) Begin(now int64) { l.change(1, now) }

// End counts one off at now.
func (l *Level) End(now int64) { l.change(-1, now) }

// Add adds time that was measured otherwise.
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

// advance adds what has gone on until now, unless that is past: another's clock was
// looked at later. mu is held.
func (l *Level) advance(now int64) {
	if now > l.since {
		l.sum += l.n * (now - l.since)
		l.since = now
	}
}

// Sum is the sum of the times until now.
func (l *Level) Sum(now int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n > 0 {
		l.advance(now)
	}
	return l.sum
}

// Busy counts things under way and the time in which there are any. It looks at
// the clock only when there begin to be some, or none. The zero value is ready.
type Busy struct {
	n atomic.Int64
	// any has one where there are some. Who begins and who ends at the same time
	// may come to it in another order; it then has two, or none, for that moment.
	any Level
}

// Begin counts n > 0 more.
func (b *Busy) Begin(n int) {
	if b.n.Add(int64(n)) == int64(n) {
		b.any.Begin(Now())
	}
}

// End counts one off.
func (b *Busy) End() {
	if b.n.Add(-1) == 0 {
		b.any.End(Now())
	}
}

// Any says whether there are some.
func (b *Busy) Any() bool { return b.n.Load() > 0 }

// Sum is the time with any until now, and how many there are.
func (b *Busy) Sum(now int64) (nanos, n int64) { return b.any.Sum(now), b.n.Load() }
