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

// Mapped says that some of the loan's records lie in mapped files. Such bytes
// are copied, never handed on as they lie, by a goroutine that has set
// debug.SetPanicOnFault and recovers (a file that is truncated takes its pages
// away), and only given on after Check: a truncation shows the rest of its last
// page as zeros.
func (l *Loan) Mapped() bool { return false }

// Check says whether what was copied from the loan's records so far is what was
// indexed: nil, or the error that Lend would give. It looks at each mapped file
// of the loan once.
func (l *Loan) Check() error { return nil }

// Fault gives the error to report when copying from the loan faulted (SIGBUS
// recovered), naming a shard; it also makes the fetcher stop using that shard's
// mapping.
func (l *Loan) Fault() error { return nil }
