package fs

// mark is how far a worker file has been delivered, in bytes, and to which reader. The zero value
// is the state at a restore. It is pure, and not for concurrent use.
//
//	                a read from the front, or across the furthest end
//	no reader: ──────────────────────────────────────────────────────► reader p:
//	the furthest end                                                   the furthest end
//	of all readers  ◄──────────────────── p is closed ──────────────── that p was sent
//
// So a program that looks at a file before the training (md5sum, tar t, a file manager) does not
// make checkpoints skip untrained records; one that looks while the training has the file open
// moves nothing; and one that looks later can't move the mark back for good.
//
// A read is from the front if it starts at or before the first record. It goes across an end if it
// starts at or before it and ends after it. So a program that looks at a file's middle or end is
// not a reader, and one that goes through it from the front is, even if it skips parts (as tar
// does).
//
// If a second program reads from the front while a first one is the reader, and the first one
// closes the file, it is unknown which of them trains. The second one becomes the reader when it
// reads on, if it is behind the first: better to deliver a record twice than to skip one. If it is
// ahead, the mark stays.
//
// A program that makes several reads at once (threads, io_uring) may get the later ones first: the
// read that makes it the reader also counts those that were in flight with it.
type mark struct {
	furthest int64     // of what readers were sent since the restore
	reader   *progress // nil if none is open
}

// progress is what was sent of a worker file through one handle. The zero value is that of a handle
// that has read nothing.
type progress struct {
	// end is the furthest end of what was sent since the handle read from the front, or became the
	// reader. It means nothing until started.
	started bool
	end     int64
	// last is the start of the read that ended at end.
	last int64

	underWay int   // reads in flight
	flown    int64 // the furthest end that was sent since none was in flight
}

// bytes is the mark.
func (m *mark) bytes() int64 {
	if m.reader != nil {
		return m.reader.end
	}
	return m.furthest
}

// takes reports whether a read of [off, end) makes p the reader if no reader is open. begins is the
// offset of the file's first record.
func (m *mark) takes(p *progress, off, end, begins int64) bool {
	return off <= begins || m.covers(off, end) || p.started && p.end <= m.furthest && end <= m.furthest
}

// covers reports whether [off, end) goes across the furthest end.
func (m *mark) covers(off, end int64) bool { return off <= m.furthest && end > m.furthest }

// sent records that p was sent the bytes [off, end), by a read that had called begin.
func (m *mark) sent(p *progress, off, end, begins int64) {
	flown := p.ended(end)
	if m.reader != p {
		free := m.reader == nil
		took := free && m.takes(p, off, end, begins)
		if off <= begins || took && m.covers(off, end) {
			p.started, p.end = true, 0
		}
		if took {
			m.reader = p
		}
	}
	if p.started && flown > p.end {
		p.end, p.last = flown, off
	}
	if m.reader == p {
		m.furthest = max(m.furthest, p.end)
	}
}

// closed records that the handle of p has been closed.
func (m *mark) closed(p *progress) {
	if m.reader == p {
		m.reader = nil
	}
}

// begin records that a read has begun.
func (p *progress) begin() {
	if p.underWay == 0 {
		p.flown = 0
	}
	p.underWay++
}

// ended records that a read has ended at end (0: it failed and sent nothing), and returns the
// furthest end of those that were in flight with it.
func (p *progress) ended(end int64) int64 {
	p.underWay--
	p.flown = max(p.flown, end)
	return p.flown
}
