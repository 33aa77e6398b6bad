package budget

import (
	"errors"
	"sync/atomic"
)

// Budget is the amount of memory for records and all that is needed to read them. Segments of
// records take what is left: everything else that grows and shrinks (decoders, tables) is charged
// here, and segments make room when they next look. Its methods may be called concurrently, and
// take no lock.
type Budget struct {
	bytes   atomic.Int64
	charged atomic.Int64
	kept    atomic.Int64
}

// New returns a budget of that many bytes.
func New(bytes int64) *Budget {
	b := new(Budget)
	b.bytes.Store(bytes)
	return b
}

// Allow changes the size of the budget.
func (b *Budget) Allow(bytes int64) { b.bytes.Store(bytes) }

// Bytes returns the size of the budget.
func (b *Budget) Bytes() int64 { return b.bytes.Load() }

// Charge adds bytes that are held outside of segments; negative numbers subtract.
func (b *Budget) Charge(bytes int64) { b.charged.Add(bytes) }

// Charged returns how many bytes are held outside of segments.
func (b *Budget) Charged() int64 { return b.charged.Load() }

// Keep sets how many bytes segments have, with their tables.
func (b *Budget) Keep(bytes int64) { b.kept.Store(bytes) }

// Held returns how many bytes are held, by segments and outside of them.
func (b *Budget) Held() int64 { return b.kept.Load() + b.charged.Load() }

// Rest returns what segments may have: what is not charged, and at least half of the budget.
func (b *Budget) Rest() int64 {
	bytes := b.bytes.Load()
	return max(bytes-b.charged.Load(), bytes/2)
}

// Beyond returns how many of the charged bytes segments don't make room for, because Rest does not
// fall below half of the budget.
func (b *Budget) Beyond() int64 { return max(b.charged.Load()-b.bytes.Load()/2, 0) }

// Urgency determines what may be done to find memory.
type Urgency int

const (
	Opportunistic Urgency = iota // stay within the budget; drop only what was delivered, and decoders of little use
	Prefetch                     // stay within the budget
	Demand                       // a reader waits: stay within the budget if possible
)

// ErrNoRoom means that there is no memory to read ahead. No reader sees it: one that waits always
// gets memory.
var ErrNoRoom = errors.New("no memory to read ahead")

// ErrClosed ends loads when their fetcher is closed.
var ErrClosed = errors.New("the fetcher is closed")

// Memory is a stretch of bytes outside of the Go heap that holds records, with the count of its
// users, and of the bytes that are still to be delivered.
type Memory struct {
	Bytes []byte // may be touched only while pinned
	Pins  Pins
	Live  atomic.Int64 // bytes of undelivered records
}

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

const (
	// PageBytes is the size of a page of memory, and of a file.
	PageBytes = 4096
	// AlignFromBytes is the minimum size of pieces that are read in whole pages: into memory that
	// is aligned as well, a read that bypasses the page cache then needs no copy.
	AlignFromBytes = 64 << 10
)

// RoundToPages rounds n up to whole pages, in bytes.
func RoundToPages(n int64) int64 { return (n + PageBytes - 1) &^ (PageBytes - 1) }
