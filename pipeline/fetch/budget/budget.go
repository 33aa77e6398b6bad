package budget

import "sync/atomic"

// Budget is how much memory there is for records and all that is needed to have them.
// Segments of records take what nobody else does: whoever holds anything else that
// grows and shrinks (decoders, tables) charges it here, and segments make room when
// they next look. Its methods may be called concurrently, and take no lock.
type Budget struct {
	bytes   int64
	charged atomic.Int64
}

// New is a budget of so many bytes.
func New(bytes int64) *Budget { return &Budget{bytes: bytes} }

// Charge notes that so many bytes more, or less, are held beside segments.
func (b *Budget) Charge(bytes int64) { b.charged.Add(bytes) }

// Charged is how many bytes are held beside segments.
func (b *Budget) Charged() int64 { return b.charged.Load() }

// Rest is what segments may have: what is not charged, and half of all at least.
func (b *Budget) Rest() int64 { return max(b.bytes-b.charged.Load(), b.bytes/2) }
