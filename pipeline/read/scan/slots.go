package scan

import "sync/atomic"

// slots has the entry of each piece that is in memory. Lookups take no lock; changes are made with
// Scanner.mu held.
type slots struct {
	entries []atomic.Pointer[entry]
	missing atomic.Int64 // pieces that are wanted and not whole in memory
}

// newSlots returns slots for the given number of pieces, of which some are wanted.
func newSlots(pieces, wanted int) *slots {
	s := &slots{entries: make([]atomic.Pointer[entry], pieces)}
	s.missing.Store(int64(wanted))
	return s
}

func (s *slots) at(piece int) *entry { return s.entries[piece].Load() }

// set replaces the entry of a piece by e (nil for none).
func (s *slots) set(piece int, e *entry) {
	old := s.entries[piece].Swap(e)
	if old != nil && old.whole {
		s.missing.Add(1)
	}
	if e != nil && e.whole {
		s.missing.Add(-1)
	}
}

// has reports whether record i of a piece is in memory.
func (s *slots) has(piece, i int) bool {
	e := s.at(piece)
	return e != nil && e.spans[i].SizeBytes >= 0
}
