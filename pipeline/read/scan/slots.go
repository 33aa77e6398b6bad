package scan

import "sync/atomic"

// slots has, for each piece, what of it is in memory. Look-ups take no lock;
// changes are made with Scanner.mu held.
type slots struct {
	entries []atomic.Pointer[entry]
	missing atomic.Int64 // pieces that are wanted and not whole in memory
}

// newSlots are those of so many pieces, of which some are wanted.
func newSlots(pieces, wanted int) *slots {
	s := &slots{entries: make([]atomic.Pointer[entry], pieces)}
	s.missing.Store(int64(wanted))
	return s
}

func (s *slots) at(piece int) *entry { return s.entries[piece].Load() }

// set puts e (nil for nothing) in the place of what is there.
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
