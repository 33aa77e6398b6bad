package budget

import "sync/atomic"

// Pins count who uses a stretch of memory. While there are some it stays what it is
// and where it is; with none its owner may kill it, after which nobody can pin it any
// more. The zero value has none. Methods may be called concurrently.
type Pins struct{ n atomic.Int64 }

const dead = -1 << 40

// Pin keeps the bytes where they are, until Unpin. It says no where they are dead.
func (p *Pins) Pin() bool {
	if p.n.Add(1) > 0 {
		return true
	}
	p.n.Add(-1)
	return false
}

// Unpin takes one Pin back.
func (p *Pins) Unpin() { p.n.Add(-1) }

// Add pins n times what is known not to be dead.
func (p *Pins) Add(n int64) { p.n.Add(n) }

// Count is how many pins there are; below 0 for what is dead.
func (p *Pins) Count() int64 { return p.n.Load() }

// Kill makes dead what nobody pins, and says whether it did.
func (p *Pins) Kill() bool { return p.n.CompareAndSwap(0, dead) }

// Reset begins anew with n pins, for memory that nobody else knows of yet.
func (p *Pins) Reset(n int64) { p.n.Store(n) }
