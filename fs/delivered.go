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
// goes through it from the front does, also when it skips parts (tar does).
type mark struct {
	bytes  int64
	reader uint64 // a handle's number, 0 for none
	// leaving says that the reader was flushed and has not read since.
	leaving bool
}

// sent records that handle was sent the bytes [off, end), and says whether the
// mark has moved. A handle's number is never 0.
func (m *mark) sent(handle uint64, off, end int64) bool {
	if (m.reader == 0 || m.leaving) && off <= m.bytes && end > m.bytes {
		m.reader = handle
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
