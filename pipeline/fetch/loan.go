package fetch

// Loan is bytes lent to a caller: valid, and not to be written to, until
// Release. A Loan is reused without allocation.
type Loan struct {
	Records [][]byte

	segs    []*segment // each pinned once
	numbers []uint64
}

// Release gives everything back and empties l.
func (l *Loan) Release() {
	for i, s := range l.segs {
		s.unpin()
		l.segs[i] = nil
	}
	clear(l.Records)
	l.segs, l.Records = l.segs[:0], l.Records[:0]
}

// hold pins a segment, unless that would make more than limit of those that
// were pinned from index from on, or the segment is dead.
func (l *Loan) hold(s *segment, from, limit int) bool {
	for i := len(l.segs) - 1; i >= from; i-- {
		if l.segs[i] == s {
			return true
		}
	}
	if len(l.segs)-from >= limit || !s.pin() {
		return false
	}
	l.segs = append(l.segs, s)
	return true
}
