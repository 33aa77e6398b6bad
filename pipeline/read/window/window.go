package window

import (
	"cmp"
	"slices"
)

const (
	firstWindowRecords = 64
	// MaxRecords is how many records are read ahead of a reader at most.
	MaxRecords = 32 << 10
	// nearRecords and nearBytes are how far from where it was a reader may read and
	// still count as reading on: whichever is more. Replies of one file are asked for out
	// of order, and package stream copies up to 3 MiB of them together in advance, from
	// two places at a time.
	nearRecords = 1024
	nearBytes   = 4 << 20
	// readOnCalls is how many calls of the same size may still be missing before
	// one for a reader to count as reading on, so that more is read ahead.
	readOnCalls = 4
	// MaxPieces bounds what is read ahead for one reader and has not been come to,
	// beside the bytes that its caller gives.
	MaxPieces = 1024
	// Where storage is told what comes, these are the bounds: 1 GiB of 128 KiB each, or of
	// records of a KiB.
	farPieces, farRecords = 8 << 10, 1 << 20
	// maxWindows is how many places a reader may keep to: a file that is mapped
	// is read at some places in turn.
	maxWindows = 4
)

// window is what a reader reads ahead at one place: pieces of the records that
// follow. It begins with what is asked for alone, which is all that somebody who
// samples wants, and doubles while the reader reads on.
//
//	      ├── passed ──┼── scanned ─────────────┤
//	──────┬────────────┬────────────┬───────────┬──────────
//	 next-nearRecords next  next+nearRecords scanned
//	      └────────── here: the same place ─────┘   elsewhere: a jump
type window struct {
	next    uint64 // behind the furthest record that was asked for in turn
	near    uint64 // see Near
	records int
	scanned uint64  // up to here the sequence has been looked at
	looked  stretch // of the call for which it was looked at last
	goOn    uint64  // where there was no room beyond scanned: looked at again when next is here; else 0
	// started are the pieces that were read ahead and not come to, by place.
	started []aheadPiece
	bytes   int64 // of started, with their tables
}

type aheadPiece struct {
	k     uint64
	bytes int64
}

// stretch is records from … to-1 of a sequence.
type stretch struct{ from, to uint64 }

// isBack says whether a call for records k … k+n-1 goes back: it is not the rest of the call
// before it. It is asked once for each.
func (w *window) isBack(k uint64, n int) bool {
	end := k + uint64(n)
	if w.looked.from <= k && end <= w.looked.to {
		return false
	}
	w.looked = stretch{k, end}
	return true
}

// has says whether a call for records from k on is one at the window's place: a
// seek forward to what has been looked at is no jump.
func (w *window) has(k uint64) bool {
	return k+w.near >= w.next && k <= max(w.next+w.near, w.scanned)
}

// Near is within how many records of where it was a reader counts as reading on, where
// they have so many bytes each, 0 for not known.
func Near(recordBytes int64) uint64 {
	if recordBytes <= 0 {
		return nearRecords
	}
	return uint64(max(nearRecords, nearBytes/recordBytes))
}

// goOnShare is how often what is read ahead is filled up while the reader goes through it.
// Were it filled up only when little is left, storage would bring nothing meanwhile, and the
// reader would wait for it then.
const goOnShare = 16

// due says whether the sequence is to be looked at up to target, for a call for records up
// to end: some of these were not looked at; or there was no room, and the reader has
// since made some; or a quarter of what is to be read ahead is missing; or all up to reached,
// beyond which nothing is planned.
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

// leave is called when the reader goes elsewhere, and what had not begun was called off:
// that is to be looked at again. What has come, or still comes, counts on, or a reader that is
// at two places in turn would read further ahead each time, and fill the memory.
func (w *window) leave(holds func(k uint64) bool) {
	w.scanned, w.goOn = w.next, 0
	w.bytes = 0
	w.started = slices.DeleteFunc(w.started, func(p aheadPiece) bool { return !holds(p.k) })
	for _, p := range w.started {
		w.bytes += p.bytes
	}
}

// move follows a call for records k … k+n-1, which is at the window's place. It reads
// ahead up to so many records.
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
