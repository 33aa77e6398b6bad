package diskcache

// purpose is why pages are brought.
type purpose uint8

const (
	// toFill is for later: there has to be room for good.
	toFill purpose = iota
	// toRead is for a reader, which does not wait for a disk that is slower than what comes:
	// then what it reads passes through.
	toRead
	// toGather is for readers who come back for other parts: they wait for the disk, since what
	// passed through would be asked for by each of them.
	toGather
)

// newFlight makes a flight, if there is room for its pages. o.mu is held.
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
	s.underWay++ // who asks is under way, so Close waits
	s.mu.Unlock()
	return f
}

// behind says that what comes, comes faster than the disk takes it.
func (s *Storage) behind() bool { return s.unwritten.Load() > s.config.BufferBytes/2 }
