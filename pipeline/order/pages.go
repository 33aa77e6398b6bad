package order

const pageRecords = 1 << 14

// pageKey names a page of a sequence.
type pageKey struct {
	of   *sequence
	page uint64
}

// page is a piece of a sequence of records. records may be read once filled
// is closed, by whoever got the page, also after it left the cache.
type page struct {
	item
	key     pageKey
	records []uint64
	ready   bool // filled is closed; guarded by Memory.mu
	filled  chan struct{}
}

// sequence is one that pages are of: what a view has left (G′), or G.
type sequence struct {
	memory *Memory
	epoch  *Epoch
	levels []level
	// idle are walkers that wait where the page ended that they made, so that
	// reading on costs no seek, the longest idle first. It is guarded by Memory.mu.
	idle []*item
}

// records gives a page; it is not to be written to. A page is computed once, by
// the first who wants it, while others go on.
func (s *sequence) records(number uint64) []uint64 {
	m, key := s.memory, pageKey{s, number}
	m.mu.Lock()
	at, ok := m.pages[key]
	if ok {
		m.touch(&at.item)
		ready := at.ready
		m.mu.Unlock()
		if !ready {
			<-at.filled
		}
		return at.records
	}
	at = &page{key: key, filled: make(chan struct{})}
	at.page, at.bytes = at, 8*pageRecords
	m.pages[key] = at
	m.link(&at.item)
	m.trim()
	m.mu.Unlock()

	m.turns <- struct{}{}
	at.records = s.compute(number)
	<-m.turns
	m.mu.Lock()
	at.ready = true
	m.mu.Unlock()
	close(at.filled)
	return at.records
}

// compute computes a page.
func (s *sequence) compute(number uint64) []uint64 {
	begin := number * pageRecords
	r := s.borrow(begin)
	r.seek(begin)
	records := make([]uint64, min(pageRecords, r.length-begin))
	r.fill(records)
	s.give(r)
	return records
}

// walkerBytes is about what a walker takes.
func (s *sequence) walkerBytes() int64 { return int64(s.epoch.bytes + 8*readerRecords) }

// borrow gives the walker that waits at begin; or a new one, while there is
// memory; or the one of the sequence that has been idle for longest. Nobody
// takes a walker that is in use.
func (s *sequence) borrow(begin uint64) *rest {
	if r := s.takeIdle(begin); r != nil {
		return r
	}
	return newRest(s.epoch, s.levels)
}

func (s *sequence) takeIdle(begin uint64) *rest {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.use(s.epoch)
	at := -1
	for i, it := range s.idle {
		if it.walker.next == begin {
			at = i
		}
	}
	if at < 0 && len(s.idle) > 0 && m.held+s.walkerBytes() > m.most {
		at = 0
	}
	if at < 0 {
		return nil
	}
	it := s.idle[at]
	m.drop(it)
	return it.walker
}

// give keeps a walker, unless what it goes by has been dropped meanwhile.
func (s *sequence) give(r *rest) {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.source.cursor.arrangement != s.epoch.arranged.Load() {
		return
	}
	it := &item{bytes: s.walkerBytes(), walker: r, of: s}
	s.idle = append(s.idle, it)
	m.link(it)
	m.trim()
}
