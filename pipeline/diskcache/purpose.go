package diskcache

// purpose is why pages are fetched.
type purpose uint8

const (
	// toFill is for later: there must be permanent room.
	toFill purpose = iota
	// toRead is for a reader, which does not wait for a disk that is slower than the storage below:
	// then the pages pass through.
	toRead
	// toGather is for readers that come back for other parts: they wait for the disk, because each
	// of them would request again what passes through.
	toGather
)

// newFlight returns a flight if there is room for its pages. o.mu is held.
func (s *Storage) newFlight(o *object, pages run, why purpose) *flight {
	if !s.health.writes() || why == toRead && s.behind() {
		return nil
	}
	p := s.room.take(pages.bytes(), why == toFill)
	if p == nowhere {
		return nil
	}
	f := &flight{s: s, object: o, pages: pages, place: p}
	o.flights = append(o.flights, f)
	s.mu.Lock()
	s.use(o)
	s.underWay++ // the caller's operation is in progress, so Close waits
	s.mu.Unlock()
	return f
}

// behind reports whether data arrives faster than the disk takes it.
func (s *Storage) behind() bool { return s.unwritten.Load() > s.config.BufferBytes/2 }
