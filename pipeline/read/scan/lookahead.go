package scan

import (
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
)

// follow returns the window of a reader of a sequence.
func (sc *Scanner) follow(seq pinned.Sequence, phase chunkmap.Subset) window.Reader {
	counts := sc.wanted
	if sc.holdsAll && sc.spool == nil {
		counts = nil // all is kept, wanted or not
	}
	r := window.NewReader(seq, counts, sc.o.LookaheadRecords, sc.nearRecords())
	r.Tell(sc.plan.NewPhaseWalker(seq, phase))
	return r
}

// stock is the window.Loader of a reader. It is guarded by Reader.mu.
type stock struct {
	r     *Reader
	todo  deferred // to be done after the lock is released
	again bool     // pinned.Records.Again of the call
}

var _ window.Loader = (*stock)(nil)

// Have returns how many of the records are in memory, up to the first that is not.
func (s *stock) Have(records []uint64) int {
	sc := s.r.sc
	for at, record := range records {
		piece := sc.pieces.Of(record)
		if !sc.slots.has(piece, int(record-sc.pieces.Starts[piece])) {
			return at
		}
	}
	return len(records)
}

// Holds implements window.Loader.
func (s *stock) Holds(record uint64) bool {
	sc := s.r.sc
	piece := sc.pieces.Of(record)
	if sc.slots.has(piece, int(record-sc.pieces.Starts[piece])) {
		return true
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.loads[piece] != nil
}

// Start starts the load of a record's piece, unless it is in progress.
func (s *stock) Start(record uint64, more bool) (bytes int64, room bool) {
	sc := s.r.sc
	piece := sc.pieces.Of(record)
	i := int(record - sc.pieces.Starts[piece])
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.slots.has(piece, i) {
		return 0, true // loaded since it was looked up
	}
	if ld := sc.loads[piece]; ld != nil {
		ld.want(s.r)
		return 0, true
	}
	if !more || !sc.reads(s.r.phase) {
		return 0, false
	}
	ld := sc.start(piece, wantedBy(i, s.again), budget.Prefetch, &s.todo)
	if ld == nil {
		return 0, false
	}
	ld.want(s.r)
	return ld.layout.CostBytes(), true
}

// Cancel implements window.Loader.
func (s *stock) Cancel() { s.r.sc.cancel(s.r) }

// readAhead starts loads of what is missing of records k … k+n-1, and after them. missing means
// that some of these are missing, from the lent-th on. again is pinned.Records.Again.
func (r *Reader) readAhead(k uint64, n int, missing bool, lent int, again bool) {
	sc := r.sc
	if sc.slots.missing.Load() == 0 {
		return
	}
	if !r.mu.TryLock() {
		return // another call is doing it
	}
	readers := max(sc.open.Load(), 1)
	reach := r.ahead.Walker().Reach(sc.o.Profile.Ahead.Bytes)
	r.stock.again = again
	r.ahead.Advance(&r.stock, k, n, missing, lent, int(readers), min(reach, min(sc.limits.WindowBytes, sc.budget.Bytes()/4)/readers))
	t := r.stock.todo
	r.stock.todo = deferred{}
	r.mu.Unlock()
	sc.submit(&t)
}
