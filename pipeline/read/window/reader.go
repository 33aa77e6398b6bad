package window

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
)

// Loader knows which pieces are in memory, and loads them. Its methods are called with the reader's
// lock held.
type Loader interface {
	// Have returns how many of the records, up to the first that is not, are in memory.
	Have(records []uint64) int
	// Holds reports whether a record is in memory or on its way.
	Holds(record uint64) bool
	// Start loads the piece of a record, unless it is in memory or on its way. It begins a new load
	// only if more is set. It returns the memory that the piece takes, 0 if no load was begun, and
	// false if there is no room to read further ahead.
	Start(record uint64, more bool) (bytes int64, room bool)
	// Cancel cancels loads that only this reader wanted and that have not begun.
	Cancel()
}

// Reader follows one pass over a sequence. It is not for concurrent use.
type Reader struct {
	seq         pinned.Sequence
	counts      *Wanted // nil if they are not needed
	lookRecords int
	near        uint64
	windows     []*window // the most recently used one is last
	look        lookahead
	buf         []uint64
	walker      *Lookahead // nil: the storage takes no hints
}

// NewReader returns a Reader for a pass over a sequence. If counts is not nil, lookRecords of the
// records that follow are counted, for all readers together. A call within near records of the
// previous one is not a jump: see Near.
func NewReader(seq pinned.Sequence, counts *Wanted, lookRecords int, near uint64) Reader {
	return Reader{seq: seq, counts: counts, lookRecords: lookRecords, near: near}
}

// Tell sets the Lookahead that tells the storage what will be read. What it has not planned is not
// read ahead. The Reader owns it from then on.
func (r *Reader) Tell(w *Lookahead) { r.walker = w }

// Walker returns the Lookahead set by Tell.
func (r *Reader) Walker() *Lookahead { return r.walker }

// most returns the maximum number of records and pieces that are read ahead.
func (r *Reader) most() (records, pieces int) {
	if r.walker != nil {
		return farRecords, farPieces
	}
	return MaxRecords, MaxPieces
}

// Close withdraws counts and plans.
func (r *Reader) Close() {
	r.walker.Close()
	if r.counts != nil {
		r.count(r.look.from, r.look.to, -1)
		r.look = lookahead{}
	}
}

// goTo returns the window of a call for records k … k+n-1. If there is none at that place the
// reader has jumped: loads that it wanted elsewhere and that have not begun are cancelled.
func (r *Reader) goTo(k uint64, n int, s Loader) *window {
	if i := slices.IndexFunc(r.windows, func(w *window) bool { return w.has(k) }); i >= 0 {
		w := r.windows[i]
		r.windows = append(slices.Delete(r.windows, i, i+1), w)
		most, _ := r.most()
		w.move(k, n, most)
		return w
	}
	if len(r.windows) > 0 {
		s.Cancel()
	}
	for _, w := range r.windows {
		w.leave(func(k uint64) bool { return r.holds(k, s) })
	}
	if len(r.windows) == maxWindows {
		r.windows = slices.Delete(r.windows, 0, 1)
	}
	w := &window{next: k + uint64(n), near: r.near, scanned: k}
	r.windows = append(r.windows, w)
	return w
}

// holds reports whether record k of the sequence is in memory or on its way.
func (r *Reader) holds(k uint64, s Loader) bool {
	return r.seq.Records(k, r.scratch(1)) == 1 && s.Holds(r.buf[0])
}

// Advance starts loads of what is missing of records k … k+n-1, and after them. missing means that
// some of these are missing, from the lent-th on. readers is the number of readers. Loads that were
// begun and not reached take up to limit bytes, and a piece.
func (r *Reader) Advance(s Loader, k uint64, n int, missing bool, lent, readers int, limit int64) {
	w := r.goTo(k, n, s)
	r.walker.Move(k, n)
	r.lookAhead(k, readers)
	switch {
	case !missing || w.scanned < k+uint64(n):
	case lent > 0:
		r.scan(s, w, k+uint64(lent), k+uint64(n), limit)
	case !r.holds(k, s) && w.isBack(k, n):
		// What it goes back to has been dropped since. It is limited as after a jump.
		r.scan(s, &window{}, k, k+uint64(n), limit)
	}
	reached := max(k+uint64(n), r.walker.Reached(k))
	target := min(w.next+uint64(w.records), r.seq.Len(), reached)
	if w.due(k+uint64(n), target, reached) {
		w.scanned = r.scan(s, w, w.scanned, target, limit)
		w.goOn = 0
		if w.scanned < target { // there is no room
			w.goOn = w.next + max((w.scanned-min(w.next, w.scanned))/goOnShare, 1)
		}
	}
}

// blockRecords is how many records are looked up at a time.
const blockRecords = 256

// scratch returns memory for the numbers of the next n records, or some of them.
func (r *Reader) scratch(n uint64) []uint64 {
	if r.buf == nil {
		r.buf = make([]uint64, blockRecords)
	}
	return r.buf[:min(n, blockRecords)]
}

// scan starts loads of the missing pieces of records from … to-1, as long as there is room, and
// returns how far it came.
func (r *Reader) scan(s Loader, w *window, from, to uint64, limit int64) uint64 {
	_, most := r.most()
	for from < to {
		m := r.seq.Records(from, r.scratch(to-from))
		if m == 0 {
			return from
		}
		for rest := r.buf[:m]; len(rest) > 0; {
			have := s.Have(rest)
			from += uint64(have)
			if rest = rest[have:]; len(rest) == 0 {
				break
			}
			more := !(w.bytes > 0 && w.bytes >= limit || len(w.started) >= most)
			bytes, room := s.Start(rest[0], more)
			if !room {
				return from
			}
			if bytes > 0 {
				w.start(from, bytes)
			}
			from++
			rest = rest[1:]
		}
	}
	return from
}

// Window is what a reader reads ahead at one place, for observers.
type Window struct {
	Next    uint64 // after the furthest record that was asked for in sequence
	Records int    // that follow, and are read ahead
	Scanned uint64 // up to here the sequence has been looked up
}

// Windows returns the places that the reader reads at; the most recently used one is last.
func (r *Reader) Windows() []Window {
	out := make([]Window, len(r.windows))
	for i, w := range r.windows {
		out[i] = Window{w.next, w.records, w.scanned}
	}
	return out
}
