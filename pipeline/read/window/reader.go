package window

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
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
	seq         chunkmap.Sequence
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
func NewReader(seq chunkmap.Sequence, counts *Wanted, lookRecords int, near uint64) Reader {
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

const (
	firstWindowRecords = 64
	// MaxRecords is the maximum number of records that are read ahead of a reader.
	MaxRecords = 32 << 10
	// nearRecords and nearBytes are how far from where it was a reader may read and still count as
	// reading on: whichever is more. Replies of one file are requested out of order, and package
	// stream copies up to 3 MiB of them together in advance, from two places at a time.
	nearRecords = 1024
	nearBytes   = 4 << 20
	// readOnCalls is how many calls of the same size may still be missing before a call for the
	// reader to count as reading on, so that more is read ahead.
	readOnCalls = 4
	// MaxPieces limits what is read ahead for one reader and has not been reached, in addition to
	// the caller's limit in bytes.
	MaxPieces = 1024
	// The limits if storage is told what will be read: 1 GiB of pieces of 128 KiB, or of records of
	// 1 KiB.
	farPieces, farRecords = 8 << 10, 1 << 20
	// maxWindows is how many places a reader may read at: a mapped file is read at several places
	// alternately.
	maxWindows = 4
)

// window is what a reader reads ahead at one place: pieces of the records that follow. It begins
// with only what is asked for, which is all that a sampling reader needs, and doubles while the
// reader reads on.
//
//	      ├── passed ──┼── scanned ─────────────┤
//	──────┬────────────┬────────────┬───────────┬──────────
//	 next-nearRecords next  next+nearRecords scanned
//	      └────────── here: the same place ─────┘   elsewhere: a jump
type window struct {
	next    uint64 // after the furthest record that was asked for in sequence
	near    uint64 // see Near
	records int
	scanned uint64  // up to here the sequence has been looked up
	looked  stretch // of the call that looked it up last
	goOn    uint64  // if there was no room after scanned: look again when next is here; else 0
	// started are the pieces that were read ahead and not reached, by position.
	started []aheadPiece
	bytes   int64 // of started, with their tables
}

type aheadPiece struct {
	k     uint64
	bytes int64
}

// stretch is records from … to-1 of a sequence.
type stretch struct{ from, to uint64 }

// isBack reports whether a call for records k … k+n-1 goes back, instead of being the rest of the
// previous call. It is called once per call.
func (w *window) isBack(k uint64, n int) bool {
	end := k + uint64(n)
	if w.looked.from <= k && end <= w.looked.to {
		return false
	}
	w.looked = stretch{k, end}
	return true
}

// has reports whether a call for records from k on is at the window's place: a seek forward to what
// has been looked up is not a jump.
func (w *window) has(k uint64) bool {
	return k+w.near >= w.next && k <= max(w.next+w.near, w.scanned)
}

// Near returns the distance in records up to which a reader counts as reading on, for records of
// that many bytes, 0 for unknown.
func Near(recordBytes int64) uint64 {
	if recordBytes <= 0 {
		return nearRecords
	}
	return uint64(max(nearRecords, nearBytes/recordBytes))
}

// goOnShare is how often what is read ahead is filled up while the reader goes through it. If it
// were filled up only when little is left, storage would be idle until then, and the reader would
// wait for it.
const goOnShare = 16

// due reports whether to look the sequence up to target, for a call for records up to end: if some
// of these were not looked up; or there was no room, and the reader has made some since; or a
// quarter of what is to be read ahead is missing; or target is reached, beyond which nothing is
// planned.
func (w *window) due(end, target, reached uint64) bool {
	switch {
	case w.scanned < end:
		return true
	case w.scanned >= target:
		return false
	case w.goOn > 0:
		return w.next >= w.goOn
	}
	return w.scanned+uint64(w.records)/4 < target || target == reached
}

// start notes that a piece was begun for record k.
func (w *window) start(k uint64, bytes int64) {
	i, _ := slices.BinarySearchFunc(w.started, k, func(p aheadPiece, k uint64) int { return cmp.Compare(p.k, k) })
	w.started = slices.Insert(w.started, i, aheadPiece{k, bytes})
	w.bytes += bytes
}

// leave is called when the reader goes elsewhere, and what had not begun was cancelled: that is to
// be looked up again. What was loaded, or is being loaded, still counts; otherwise a reader that
// alternates between two places would read further ahead each time, and fill the memory.
func (w *window) leave(holds func(k uint64) bool) {
	w.scanned, w.goOn = w.next, 0
	w.bytes = 0
	w.started = slices.DeleteFunc(w.started, func(p aheadPiece) bool { return !holds(p.k) })
	for _, p := range w.started {
		w.bytes += p.bytes
	}
}

// move follows a call for records k … k+n-1 at the window's place. It sets how many records to read
// ahead, at most mostRecords.
func (w *window) move(k uint64, n, mostRecords int) {
	end := k + uint64(n)
	if end > w.next {
		if k <= w.next+readOnCalls*uint64(n) {
			w.records = min(max(2*w.records, firstWindowRecords), mostRecords)
		}
		w.next = end
		w.looked = stretch{k, end}
	}
	w.scanned = max(w.scanned, k)
	gone := 0
	for gone < len(w.started) && w.started[gone].k < k {
		w.bytes -= w.started[gone].bytes
		gone++
	}
	w.started = append(w.started[:0], w.started[gone:]...)
}

// Wanted counts, for each piece, how many records readers will need soon. All methods except Bound
// may be called concurrently.
type Wanted struct {
	table  *chunkmap.Table
	counts []atomic.Int32

	// most limits how many pieces are wanted at a time, by all readers: what a decoder stores as it
	// passes must not fill the memory before what comes next has arrived. 0: as many as readers
	// look ahead.
	most   int64
	wanted atomic.Int64 // now
}

// NewCounts returns a Wanted for the pieces of a table.
func NewCounts(table *chunkmap.Table) *Wanted {
	return &Wanted{table: table, counts: make([]atomic.Int32, table.Len())}
}

// Bound limits how many pieces are wanted at a time; 0 for as many as readers look ahead. It is
// called before there are readers.
func (c *Wanted) Bound(pieces int64) { c.most = pieces }

// Wanted reports whether a reader will need the piece soon.
func (c *Wanted) Wanted(piece int) bool { return c.Count(piece) > 0 }

// Count returns how many records of the piece readers will need soon.
func (c *Wanted) Count(piece int) int32 { return c.counts[piece].Load() }

// Bytes returns the memory of the counts.
func (c *Wanted) Bytes() int64 { return int64(len(c.counts)) * 4 }

// lookStep is the maximum number of records that are counted at a time.
const lookStep = 1024

// step returns how many records are counted at a time.
func (c *Wanted) step() uint64 {
	if c.most == 0 {
		return lookStep
	}
	return uint64(max(min(c.most/4, lookStep), 1))
}

// full reports whether no more pieces may be wanted.
func (c *Wanted) full() bool { return c.most > 0 && c.wanted.Load() >= c.most }

// add adds n for each of the records.
func (c *Wanted) add(records []uint64, n int32) {
	for _, record := range records {
		if now := c.counts[c.table.Of(record)].Add(n); now == max(n, 0) {
			c.wanted.Add(int64(n)) // the first, or the last
		}
	}
}

// lookahead is the stretch of a sequence that a reader has counted.
type lookahead struct{ from, to uint64 }

// lookAhead moves the stretch to record k: records before it are no longer wanted, and those that
// follow are.
func (r *Reader) lookAhead(k uint64, readers int) {
	c := r.counts
	if c == nil {
		return
	}
	l, step := &r.look, c.step()
	if k+r.near < l.from || k > l.to {
		r.count(l.from, l.to, -1)
		l.from, l.to = k, k
	}
	if k >= l.from+step {
		r.count(l.from, k, -1)
		l.from = k
	}
	// Workers that read one epoch together should each look equally far ahead in G.
	depth := max(uint64(r.lookRecords)/uint64(max(readers, 1)), lookStep)
	to := min(k+depth, r.seq.Len())
	if to < l.to+step && !(to > l.to && to == r.seq.Len()) {
		return
	}
	if c.most == 0 {
		r.count(l.to, to, 1)
		l.to = to
	}
	for l.to < to && (!c.full() || l.to <= k) {
		end := min(l.to+step, to)
		r.count(l.to, end, 1)
		l.to = end
	}
}

// count adds n for each record from … to-1.
func (r *Reader) count(from, to uint64, n int32) {
	for from < to {
		m := r.seq.Records(from, r.scratch(to-from))
		if m == 0 {
			return
		}
		r.counts.add(r.buf[:m], n)
		from += uint64(m)
	}
}
