package window

import (
	"cmp"
	"slices"
)

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
