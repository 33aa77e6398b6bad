package fetch

// Loan is bytes lent to a caller: valid, and not to be written to, until
// Release. A Loan is reused without allocation.
type Loan struct {
	Records [][]byte

	f       *Fetcher
	segs    []*segment     // each pinned once
	mapped  []mappedRecord // each has a pin of its own
	checked [checkedShards]*mappedShard
	numbers []uint64
}

// mappedRecord is a record of a piece that is mapped.
type mappedRecord struct {
	entry *entry
	index int
}

// checkedShards is how many shards a loan remembers to have looked at; it looks
// at some twice where a loan has records of more.
const checkedShards = 128

// Release gives everything back and empties l.
func (l *Loan) Release() {
	for i, s := range l.segs {
		s.unpin()
		l.segs[i] = nil
	}
	for _, x := range l.mapped {
		x.entry.seg.unpin()
	}
	clear(l.mapped)
	clear(l.Records)
	l.segs, l.mapped, l.Records = l.segs[:0], l.mapped[:0], l.Records[:0]
}

// Mapped says that some of the loan's records lie in mapped files. Such bytes
// are copied, never handed on as they lie, by a goroutine that has set
// debug.SetPanicOnFault and recovers (a file that is truncated takes its pages
// away), and only given on after Check: a truncation shows the rest of its last
// page as zeros.
func (l *Loan) Mapped() bool { return len(l.mapped) > 0 }

// Check says whether what was copied from the loan's records so far is what was
// indexed: nil, or the error that Lend would give. It looks at each mapped file
// of the loan once.
func (l *Loan) Check() error {
	if len(l.mapped) == 0 {
		return nil
	}
	defer clear(l.checked[:])
	for _, x := range l.mapped {
		s := x.entry.seg.shard
		slot := &l.checked[s.shard%checkedShards]
		if *slot == s {
			continue
		}
		*slot = s
		if err := s.mapping.Check(); err != nil {
			return l.f.lost(x, err)
		}
	}
	return nil
}

// Fault gives the error to report when copying from the loan faulted (SIGBUS
// recovered), naming a shard; it also makes the fetcher stop using that shard's
// mapping.
func (l *Loan) Fault() error {
	if err := l.Check(); err != nil || len(l.mapped) == 0 {
		return err
	}
	// Which it was is not known: none of the pieces stays mapped.
	l.f.mu.Lock()
	for _, x := range l.mapped {
		l.f.forget(x.entry)
	}
	l.f.mu.Unlock()
	x := l.mapped[0]
	return l.f.lost(x, l.f.fault(x.entry.seg))
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
