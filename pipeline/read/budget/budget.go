package budget

import "sync/atomic"

// Budget is how much memory there is for records and all that is needed to have them.
// Segments of records take what nobody else does: whoever holds anything else that
// grows and shrinks (decoders, tables) charges it here, and segments make room when
// they next look. Its methods may be called concurrently, and take no lock.
type Budget struct {
	bytes   atomic.Int64
	charged atomic.Int64
	kept    atomic.Int64
}

// New is a budget of so many bytes.
func New(bytes int64) *Budget {
	b := new(Budget)
	b.bytes.Store(bytes)
	return b
}

// Allow changes how many bytes there are.
func (b *Budget) Allow(bytes int64) { b.bytes.Store(bytes) }

// Bytes is how many there are.
func (b *Budget) Bytes() int64 { return b.bytes.Load() }

// Charge notes that so many bytes more, or less, are held beside segments.
func (b *Budget) Charge(bytes int64) { b.charged.Add(bytes) }

// Charged is how many bytes are held beside segments.
func (b *Budget) Charged() int64 { return b.charged.Load() }

// Keep notes how many bytes segments have, with their tables.
func (b *Budget) Keep(bytes int64) { b.kept.Store(bytes) }

// Held is how many bytes there are of segments and beside them.
func (b *Budget) Held() int64 { return b.kept.Load() + b.charged.Load() }

// Rest is what segments may have: what is not charged, and half of all at least.
func (b *Budget) Rest() int64 {
	bytes := b.bytes.Load()
	return max(bytes-b.charged.Load(), bytes/2)
}
