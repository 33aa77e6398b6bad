package order

const pageRecords = 1 << 14

// pageKey identifies a page of a sequence.
type pageKey struct {
	of   *sequence
	page uint64
}

// page is a part of a sequence of records. A caller that got the page may read records once filled is
// closed, even after the page left the cache.
type page struct {
	item
	key     pageKey
	records []uint64
	ready   bool // filled is closed; guarded by Memory.mu
	filled  chan struct{}
}

// sequence is what pages divide up: the remainder of a view (G′), or G.
type sequence struct {
	memory *Memory
	epoch  *Epoch
	levels []level
	// idle has the walkers that stand at the end of the page that they made, so that sequential
	// reads need no seek, the longest idle first. It is guarded by Memory.mu.
	idle []*item
}

// records returns the records of a page, which must not be modified. Each page is computed once, by
// the first caller that needs it, while callers for other pages continue.
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

// walkerBytes returns about how much memory a walker takes.
func (s *sequence) walkerBytes() int64 { return int64(s.epoch.bytes + 8*readerRecords) }

// borrow returns the walker that stands at begin; else a new one while there is memory; else the
// sequence's longest idle one. A walker in use is never returned.
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

// give returns a walker to the cache, unless its arrangement has been dropped meanwhile.
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
