package budget

import "sync/atomic"

// Pins counts the users of a stretch of memory. While there are any, the memory is neither changed
// nor freed; without any its owner may kill it, after which it can't be pinned any more. The zero
// value has no pins. Methods may be called concurrently.
type Pins struct{ n atomic.Int64 }

const dead = -1 << 40

// Pin keeps the bytes in place until Unpin. It returns false if they are dead.
func (p *Pins) Pin() bool {
	if p.n.Add(1) > 0 {
		return true
	}
	p.n.Add(-1)
	return false
}

// Unpin undoes one Pin.
func (p *Pins) Unpin() { p.n.Add(-1) }

// Add pins n times; the memory must be known not to be dead.
func (p *Pins) Add(n int64) { p.n.Add(n) }

// Count returns the number of pins; below 0 if dead.
func (p *Pins) Count() int64 { return p.n.Load() }

// Kill makes the memory dead if it is not pinned, and reports whether it did.
func (p *Pins) Kill() bool { return p.n.CompareAndSwap(0, dead) }

// Reset starts over with n pins, for memory that is not shared yet.
func (p *Pins) Reset(n int64) { p.n.Store(n) }
