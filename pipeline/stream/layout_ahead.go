package stream

// Ahead computes the set's layout before it is needed, in the caller's goroutine alone, and stores
// it. It calls goOn about every 50 µs of work; goOn may block, and so controls how much of a core
// this takes.
//
// It stops early if goOn returns false, if the source closes, or if a reader asks for the layout
// meanwhile. That reader computes the layout on all cores, without waiting for Ahead.
func (s *Set) Ahead(goOn func() bool) {
	stop := func() bool { return s.source.stopped() || s.asked() || !goOn() }
	if stop() || checkPadding(s.view) != nil {
		return
	}
	l, computed := s.stored(), false
	if l == nil {
		// One sweep from the first record to the last passes through all states of the epoch, and
		// keeps them.
		w := newSweep(s.source, s.view, max(s.view.Dealt(), 1), stop)
		if w.run(); w.err != nil {
			return // a caller that needs the layout gets the same error, or none
		}
		l, computed = w.layout, true
	}
	s.keep(l)
	if computed && s.shelf != nil {
		s.shelf.Save(l.encode())
	}
}

// asked reports whether a caller has asked for the layout.
func (s *Set) asked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending != nil
}

// keep makes l the layout that later callers get.
func (s *Set) keep(l *layout) {
	p := &pendingLayout{done: make(chan struct{}), layout: l}
	close(p.done)
	s.mu.Lock()
	asked := s.pending != nil
	if !asked {
		s.pending = p
	}
	s.mu.Unlock()
	if !asked {
		s.source.laidOut.add(s, p)
	}
}
