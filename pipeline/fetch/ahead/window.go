package ahead

const (
	firstWindowRecords = 64
	// MaxRecords is how many records are read ahead of a reader at most.
	MaxRecords = 32 << 10
	// nearRecords is how far from where it was a reader may read and still
	// count as reading on: replies of one file are asked for out of order.
	nearRecords = 1024
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
