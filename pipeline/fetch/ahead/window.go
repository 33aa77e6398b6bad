package ahead

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
	scanned uint64 // up to here the sequence has been looked at
	// started are the pieces that were read ahead and not come to, by place.
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

// start notes that a piece was begun for record k.
func (w *window) start(k uint64, bytes int64) {
	i, _ := slices.BinarySearchFunc(w.started, k, func(p aheadPiece, k uint64) int { return cmp.Compare(p.k, k) })
	w.started = slices.Insert(w.started, i, aheadPiece{k, bytes})
	w.bytes += bytes
}

// leave is called when the reader goes elsewhere, and what had not begun was called off:
// that is to be looked at again. What has come still counts, or a reader that is at two
// places in turn would read further ahead each time, and fill the memory.
func (w *window) leave(has func(k uint64) bool) {
	w.scanned = w.next
	w.bytes = 0
	w.started = slices.DeleteFunc(w.started, func(p aheadPiece) bool { return !has(p.k) })
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
	}
	w.scanned = max(w.scanned, k)
	gone := 0
	for gone < len(w.started) && w.started[gone].k < k {
		w.bytes -= w.started[gone].bytes
		gone++
	}
	w.started = append(w.started[:0], w.started[gone:]...)
}
