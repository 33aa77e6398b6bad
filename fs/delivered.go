package fs

// mark is how far a worker file has been delivered, in bytes, and through which
// handle. The zero value is the state at a restore. It is pure, and not for
// concurrent use.
//
//	          first read that covers the mark
//	unread ──────────────────────────────────► read by h ──┐ h: mark = furthest end
//	   ▲                                           │ ▲     │ others: nothing
//	   └────────────── h is closed ────────────────┘ └─────┘
//
// The kernel tells that a handle is closed some time after close() has returned,
// and by then the next reader may have begun. But close() waits until it is told
// that a descriptor of the handle was closed (a flush). From then on h is the
// reader only until another handle's read covers the mark; where h has more
// descriptors (dup, fork) and reads on first, it stays the reader.
//
// A read covers the mark when it starts at or before it and ends after it. So a
// program that looks at a file's middle or its end moves nothing, and one that
// goes through it from the front does, also when it skips parts (tar does). One that
// makes several reads at once (threads, io_uring) may be answered the later ones
// first: with the one that covers the mark count those that were under way with it.
type mark struct {
	bytes  int64
	reader uint64 // a handle's number, 0 for none
	// leaving says that the reader was flushed and has not read since.
	leaving bool
}

// sent records that handle was sent the bytes [off, end), and says whether the
// mark has moved. furthest is the end of what it was sent by reads that were under way
// with this one, end at least. A handle's number is never 0.
func (m *mark) sent(handle uint64, off, end, furthest int64) bool {
	if m.covers(off, end) && (m.reader == 0 || m.leaving) {
		m.reader, end = handle, furthest
	}
	if m.reader != handle {
		return false
	}
	m.leaving = false
	if end <= m.bytes {
		return false
	}
	m.bytes = end
	return true
}

// covers says whether a read of [off, end) makes its handle the reader, where there
// is none.
func (m *mark) covers(off, end int64) bool { return off <= m.bytes && end > m.bytes }

// flushed records that a descriptor of handle has been closed, perhaps the last.
func (m *mark) flushed(handle uint64) {
	if m.reader == handle {
		m.leaving = true
	}
}

// closed records that handle has been closed.
func (m *mark) closed(handle uint64) {
	if m.reader == handle {
		m.reader, m.leaving = 0, false
	}
}

// flight is the reads of one handle that are under way at once. The zero value has
// none; it is not for concurrent use.
type flight struct {
	reads int
	end   int64 // the furthest that was sent since there was none
}

func (f *flight) begin() {
	if f.reads == 0 {
		f.end = 0
	}
	f.reads++
}

// ended records that a read was sent what ends there (0: nothing, it failed), and
// gives the furthest end.
func (f *flight) ended(end int64) int64 {
	f.reads--
	f.end = max(f.end, end)
	return f.end
}
