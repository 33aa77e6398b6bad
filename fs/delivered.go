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
// A read covers the mark when it starts at or before it and ends after it. So a
// program that looks at a file's middle or its end moves nothing, and one that
// goes through it from the front does, also when it skips parts (tar does).
type mark struct {
	bytes  int64
	reader uint64 // a handle's number, 0 for none
}

// sent records that handle was sent the bytes [off, end), and says whether the
// mark has moved. A handle's number is never 0.
func (m *mark) sent(handle uint64, off, end int64) bool {
	if m.reader == 0 && off <= m.bytes && end > m.bytes {
		m.reader = handle
	}
	if m.reader != handle || end <= m.bytes {
		return false
	}
	m.bytes = end
	return true
}

// closed records that handle has been closed.
func (m *mark) closed(handle uint64) {
	if m.reader == handle {
		m.reader = 0
	}
}
