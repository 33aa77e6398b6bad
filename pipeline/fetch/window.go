package fetch

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
)

const (
	firstWindowRecords = 64
	maxWindowRecords   = 32 << 10
	// nearRecords is how far from where it was a reader may read and still
	// count as reading on: replies of one file are asked for out of order.
	nearRecords = 1024
	// readOnCalls is how many calls of the same size may still be missing before
	// one for a reader to count as reading on, so that more is read ahead.
	readOnCalls = 4
	// maxWindowPieces bounds what is read ahead for one reader and has not been come
	// to, beside the storage's profile.
	maxWindowPieces = 1024
	// maxWindows is how many places a reader may keep to: a file that is mapped
	// is read at some places in turn.
	maxWindows = 4
)

// window is what a reader reads ahead at one place: pieces of the records that
// follow. It begins with what is asked for alone, which is all that somebody who
// samples wants, and doubles while the reader reads on. It is guarded by
// Reader.mu.
//
//	      ├── passed ──┼── scanned ─────────────┤
//	──────┬────────────┬────────────┬───────────┬──────────
//	 next-nearRecords next  next+nearRecords scanned
//	      └────────── here: the same place ─────┘   elsewhere: a jump
type window struct {
	next    uint64 // behind the furthest record that was asked for in turn
	records int
	scanned uint64 // up to here the sequence has been looked at
	// started are the pieces that were read ahead and not come to, in order.
	started []aheadPiece
	bytes   int64 // of started, with their tables
}

type aheadPiece struct {
	k     uint64
	bytes int64
}

// has says whether a call for records from k on is one at the window's place: a
// seek forward to what has been looked at is no jump.
func (w *window) has(k uint64) bool {
	return k+nearRecords >= w.next && k <= max(w.next+nearRecords, w.scanned)
}

// move follows a call for records k … k+n-1, which is at the window's place.
func (w *window) move(k uint64, n int) {
	end := k + uint64(n)
	if end > w.next {
		if k <= w.next+readOnCalls*uint64(n) {
			w.records = min(max(2*w.records, firstWindowRecords), maxWindowRecords)
		}
		w.next = end
	}
	w.scanned = max(w.scanned, k)
	gone := 0
	for gone < len(w.started) && w.started[gone].k < k {
		w.bytes -= w.started[gone].bytes
		gone++
	}
	w.started = append(w.started[:0], w.started[gone:]...)
}

// goTo gives the window of a call for records k … k+n-1. Where none is at that
// place the reader has jumped: what it wanted elsewhere and has not begun is
// called off.
func (r *Reader) goTo(k uint64, n int) *window {
	if i := slices.IndexFunc(r.windows, func(w *window) bool { return w.has(k) }); i >= 0 {
		w := r.windows[i]
		r.windows = append(slices.Delete(r.windows, i, i+1), w)
		w.move(k, n)
		return w
	}
	if len(r.windows) > 0 {
		r.f.callOff(r)
	}
	for _, w := range r.windows {
		w.scanned, w.started, w.bytes = w.next, w.started[:0], 0
	}
	if len(r.windows) == maxWindows {
		r.windows = slices.Delete(r.windows, 0, 1)
	}
	w := &window{next: k + uint64(n), scanned: k}
	r.windows = append(r.windows, w)
	return w
}

// readAhead starts what is missing behind records k … k+n-1, and of these.
// again says that some of these are missing: they are looked at again, from
// the lent-th on.
func (r *Reader) readAhead(k uint64, n int, again bool, lent int) {
	if r.f.slots.missing.Load() == 0 {
		return
	}
	if !r.mu.TryLock() {
		return // another call is at it
	}
	w := r.goTo(k, n)
	r.lookAhead(k, int(r.f.open.Load()))
	var t todo
	if again && w.scanned >= k+uint64(n) {
		r.scan(w, k+uint64(lent), k+uint64(n), &t)
	}
	target := min(w.next+uint64(w.records), r.seq.Len())
	if w.scanned < k+uint64(n) || w.scanned+uint64(w.records)/4 < target {
		w.scanned = r.scan(w, w.scanned, target, &t)
	}
	r.mu.Unlock()
	r.f.carryOut(&t)
}

// scratch is memory for the numbers of the next n records, or some of them. It
// is guarded by Reader.mu.
func (r *Reader) scratch(n uint64) []uint64 {
	if r.buf == nil {
		r.buf = make([]uint64, lendBlock)
	}
	return r.buf[:min(n, lendBlock)]
}

// scan starts the missing pieces of records from … to-1, as far as there is
// room, and returns how far it came.
func (r *Reader) scan(w *window, from, to uint64, t *todo) uint64 {
	f := r.f
	for from < to {
		m := r.seq.Records(from, r.scratch(to-from))
		if m == 0 {
			return from
		}
		for _, record := range r.buf[:m] {
			piece := f.pieces.of(record)
			i := int(record - f.pieces.starts[piece])
			if !f.slots.has(piece, i) && !r.startAhead(w, piece, i, from, t) {
				return from
			}
			from++
		}
	}
	return from
}

// startAhead starts a piece for its record i, record k of the sequence, unless
// it is on its way. It returns false when there is no room to read further
// ahead.
func (r *Reader) startAhead(w *window, piece, i int, k uint64, t *todo) bool {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots.has(piece, i) {
		return true // since the caller looked
	}
	if ld := f.loads[piece]; ld != nil {
		ld.want(r)
		return true
	}
	limit := min(f.config.Storage.Ahead.Bytes, f.limits.windows/max(f.open.Load(), 1))
	if w.bytes > 0 && w.bytes >= limit || len(w.started) >= maxWindowPieces {
		return false
	}
	ld := f.start(piece, i, budget.Ahead, t)
	if ld == nil {
		return false
	}
	ld.want(r)
	w.started = append(w.started, aheadPiece{k, ld.layout.cost()})
	w.bytes += ld.layout.cost()
	return true
}
