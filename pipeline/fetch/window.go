package fetch

const (
	firstWindowRecords = 64
	maxWindowRecords   = 32 << 10
	// nearRecords is how far from where it was a reader may read and still
	// count as reading on: replies of one file are asked for out of order.
	nearRecords = 1024
	// maxWindowBytes and maxWindowPieces bound what is read ahead for one
	// reader and has not been come to.
	maxWindowBytes  = 32 << 20
	maxWindowPieces = 1024
)

// window is what a reader reads ahead: pieces of the records that follow. It
// starts small and doubles while the reader reads on. It is guarded by
// Reader.mu.
type window struct {
	next    uint64 // behind the furthest record that was asked for in turn
	records int
	scanned uint64 // up to here the sequence has been looked at
	// started are the pieces that were read ahead and not come to, in order.
	started []aheadPiece
	bytes   int64 // of started
	buf     []uint64
}

type aheadPiece struct {
	k     uint64
	bytes int64
}

// move follows a call for records k … k+n-1.
func (w *window) move(k uint64, n int) {
	end := k + uint64(n)
	if k+nearRecords < w.next || k > w.next+nearRecords || w.records == 0 {
		*w = window{next: end, records: firstWindowRecords, scanned: k, buf: w.buf, started: w.started[:0]}
		return
	}
	if end > w.next {
		w.next = end
		w.records = min(w.records*2, maxWindowRecords)
	}
	w.scanned = max(w.scanned, k)
	gone := 0
	for gone < len(w.started) && w.started[gone].k < k {
		w.bytes -= w.started[gone].bytes
		gone++
	}
	w.started = append(w.started[:0], w.started[gone:]...)
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
	w := &r.window
	w.move(k, n)
	r.lookAhead(k, int(r.f.open.Load()))
	var t todo
	if again && w.scanned >= k+uint64(n) {
		r.scan(k+uint64(lent), k+uint64(n), &t)
	}
	target := min(w.next+uint64(w.records), r.seq.Len())
	if w.scanned < k+uint64(n) || w.scanned+uint64(w.records)/4 < target {
		w.scanned = r.scan(w.scanned, target, &t)
	}
	r.mu.Unlock()
	r.f.carryOut(&t)
}

// scan starts the missing pieces of records from … to-1, as far as there is
// room, and returns how far it came.
func (r *Reader) scan(from, to uint64, t *todo) uint64 {
	f, w := r.f, &r.window
	if w.buf == nil {
		w.buf = make([]uint64, lendBlock)
	}
	for from < to {
		m := r.seq.Records(from, w.buf[:min(to-from, lendBlock)])
		if m == 0 {
			return from
		}
		for _, record := range w.buf[:m] {
			piece := f.pieces.of(record)
			i := int(record - f.pieces.starts[piece])
			if !f.slots.has(piece, i) && !r.startAhead(piece, i, from, t) {
				return from
			}
			from++
		}
	}
	return from
}

// startAhead starts a piece for its record i, record k of the sequence, unless it is on its
// way. It returns false when there is no room to read further ahead.
func (r *Reader) startAhead(piece, i int, k uint64, t *todo) bool {
	f, w := r.f, &r.window
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loads[piece] != nil || f.slots.has(piece, i) {
		return true // perhaps since the caller looked
	}
	limit := min(maxWindowBytes, f.limits.windows/max(f.open.Load(), 1))
	if w.bytes > 0 && w.bytes >= limit || len(w.started) >= maxWindowPieces {
		return false
	}
	ld := f.start(piece, i, ahead, t)
	if ld == nil {
		return false
	}
	w.started = append(w.started, aheadPiece{k, ld.layout.size})
	w.bytes += ld.layout.size
	return true
}
