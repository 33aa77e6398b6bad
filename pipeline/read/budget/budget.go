package budget

import "sync/atomic"

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
