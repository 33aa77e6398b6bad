package order

import "sync"

const (
	pageRecords = 1 << 14
	// maxPages of pageRecords numbers are 8 MiB.
	maxPages = 64
	// idleBytes bounds what walkers keep that wait for the next page; there may
	// always be two of them.
	idleBytes = 16 << 20
)

// pageKey names a page: of what is left (G′), or of G, for padding.
type pageKey struct {
	whole bool // of G
	page  uint64
}

// page is a piece of a sequence of records. records may be read once filled
// is closed, by whoever got the page, also after it left the cache.
type page struct {
	key          pageKey
	records      []uint64
	ready        bool // filled is closed; guarded by pages.mu
	filled       chan struct{}
	newer, older *page
}

// pages caches pages, the least recently used of them going first. A page is
// computed once, by the first who wants it, while others go on.
type pages struct {
	mu     sync.Mutex
	byKey  map[pageKey]*page
	newest page // the ring's head: newest.older is the newest page
	rest   walkers
	whole  walkers
}

func newPages(e *Epoch, levels []level) *pages {
	p := &pages{byKey: make(map[pageKey]*page)}
	p.newest.older, p.newest.newer = &p.newest, &p.newest
	limit := int(max(2, min(maxPages, idleBytes/(e.bytes+8*readerRecords))))
	p.rest = walkers{epoch: e, levels: levels, limit: limit}
	p.whole = walkers{epoch: e, limit: limit}
	return p
}

// records gives a page; it is not to be written to.
func (p *pages) records(key pageKey) []uint64 {
	p.mu.Lock()
	at, ok := p.byKey[key]
	if ok {
		at.unlink()
		p.link(at)
		ready := at.ready
		p.mu.Unlock()
		if !ready {
			<-at.filled
		}
		return at.records
	}
	at = &page{key: key, filled: make(chan struct{})}
	p.byKey[key] = at
	p.link(at)
	if len(p.byKey) > maxPages {
		oldest := p.newest.newer
		oldest.unlink()
		delete(p.byKey, oldest.key)
	}
	p.mu.Unlock()

	if key.whole {
		at.records = p.whole.page(key.page)
	} else {
		at.records = p.rest.page(key.page)
	}
	p.mu.Lock()
	at.ready = true
	p.mu.Unlock()
	close(at.filled)
	return at.records
}

func (p *pages) link(at *page) {
	at.newer, at.older = &p.newest, p.newest.older
	at.older.newer, p.newest.older = at, at
}

func (at *page) unlink() {
	at.newer.older, at.older.newer = at.older, at.newer
}

// walkers are walkers of one sequence that wait where the page ended that they
// made, so that reading on costs no seek.
type walkers struct {
	epoch  *Epoch
	levels []level
	limit  int

	mu   sync.Mutex
	idle []*rest // the longest idle first
	busy int
}

// page computes a page.
func (w *walkers) page(number uint64) []uint64 {
	begin := number * pageRecords
	r := w.borrow(begin)
	r.seek(begin)
	records := make([]uint64, min(pageRecords, r.length-begin))
	r.fill(records)
	w.give(r)
	return records
}

// borrow gives the walker that waits at begin; or a new one, while there may be
// more of them; or the one that has been idle for longest.
func (w *walkers) borrow(begin uint64) *rest {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy++
	at := -1
	for i, r := range w.idle {
		if r.next == begin {
			at = i
		}
	}
	if at < 0 && len(w.idle)+w.busy > w.limit && len(w.idle) > 0 {
		at = 0
	}
	if at < 0 {
		return newRest(w.epoch, w.levels)
	}
	r := w.idle[at]
	w.idle = append(w.idle[:at], w.idle[at+1:]...)
	return r
}

func (w *walkers) give(r *rest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	if len(w.idle)+w.busy < w.limit {
		w.idle = append(w.idle, r)
	}
}
