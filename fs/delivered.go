package fs

// mark is how far a worker file has been delivered, in bytes, and by whose reads: its
// reader's. The zero value is the state at a restore. It is pure, and not for concurrent
// use.
//
//	                a read from the front, or across the furthest end
//	no reader: ──────────────────────────────────────────────────────► reader p:
//	the furthest end                                                   the furthest end
//	of all readers  ◄──────────────────── p is closed ──────────────── that p was sent
//
// So a program that looks at a file before the training (md5sum, tar t, a file manager)
// does not make checkpoints skip what nobody has trained on, one that looks while the
// training has the file open moves nothing, and one that looks later can't move the mark
// back for good.
//
// A read is from the front when it starts where the first record begins, or before. It
// goes across an end when it starts at or before it and ends after it. So a program that
// looks at a file's middle or its end is no reader, and one that goes through it from the
// front is, also when it skips parts (tar does).
//
// Where a second program reads from the front while a first one is the reader, and the
// first one closes, nobody knows which of them trains. The second one becomes the reader
// as it reads on, if it is behind the first: rather a record twice than one left out. If
// it is ahead, the mark stays.
//
// One that makes several reads at once (threads, io_uring) may be answered the later ones
// first: with the read that makes it the reader count those that were under way with it.
type mark struct {
	furthest int64     // that a reader was sent since the restore
	reader   *progress // nil while none is open
}

// progress is what one handle was sent of a worker file. The zero value is that of a
// handle that has read nothing.
type progress struct {
	// end is the furthest end of what it was sent since it read from the front, or became
	// the reader. It means nothing until started.
	started bool
	end     int64
	// last is where the read that went to end started.
	last int64

	underWay int   // reads
	flown    int64 // the furthest end that was sent since none was under way
}

// bytes is the mark.
func (m *mark) bytes() int64 {
	if m.reader != nil {
		return m.reader.end
	}
	return m.furthest
}

// takes reports whether a read of [off, end) makes p the reader where none is open.
// begins is where the file's first record begins.
func (m *mark) takes(p *progress, off, end, begins int64) bool {
	return off <= begins || m.covers(off, end) || p.started && p.end <= m.furthest && end <= m.furthest
}

// covers reports whether [off, end) goes across the furthest end.
func (m *mark) covers(off, end int64) bool { return off <= m.furthest && end > m.furthest }

// sent records that p was sent the bytes [off, end), by a read that it had begun.
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

// ended records that a read was sent what ends there (0: nothing, it failed), and
// returns the furthest end of those that were under way with it.
func (p *progress) ended(end int64) int64 {
	p.underWay--
	p.flown = max(p.flown, end)
	return p.flown
}
