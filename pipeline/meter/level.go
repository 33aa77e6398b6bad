package meter

import "sync/atomic"

// Level counts goroutines that are at work: how many there are now, and the sum
// of the times that each has been. It takes no lock. The zero value is ready.
type Level struct {
	// state is how many there are (16 bits, signed) and when that changed last (48
	// bits, in ticks: nine years).
	state atomic.Uint64
	sum   atomic.Int64 // nanoseconds, until then
}

// A tick is about a microsecond. Times are cut off to ticks, not rounded: their
// differences add up to the whole.
const (
	tickShift = 10
	ticksMask = 1<<48 - 1
)

// Begin counts one more at now.
func (l *Level) Begin(now int64) { l.change(1, now) }

// End counts one off at now.
func (l *Level) End(now int64) { l.change(-1, now) }

// Add adds time that was measured otherwise.
func (l *Level) Add(nanos int64) { l.sum.Add(nanos) }

func (l *Level) change(by int16, now int64) {
	for {
		old := l.state.Load()
		n, since := int16(old>>48), old&ticksMask
		at := max(uint64(now)>>tickShift, since) // another's clock may have been looked at later
		if l.state.CompareAndSwap(old, uint64(uint16(n+by))<<48|at) {
			if n != 0 && at > since {
				l.sum.Add(int64(n) * int64(at-since) << tickShift)
			}
			return
		}
	}
}

// Sum is the sum of the times until now.
func (l *Level) Sum(now int64) int64 {
	state := l.state.Load()
	sum := l.sum.Load()
	if n, since := int16(state>>48), state&ticksMask; n > 0 {
		sum += int64(n) * int64(max(uint64(now)>>tickShift, since)-since) << tickShift
	}
	return sum
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
