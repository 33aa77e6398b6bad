package fetch

import (
	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// Loan is bytes lent to a caller: valid, and not to be written to, until
// Release. A Loan is reused without allocation.
type Loan struct {
	Records [][]byte
	// Waiter, when set, books what Lend waits for.
	Waiter *meter.Waiter

	f       *Fetcher
	segs    []*budget.Pins // each pinned once
	mapped  []mappedRecord // each has a pin of its own
	asked   checkedShards
	leased  bool   // Leased has said yes
	breaks  uint64 // Leaser.Breaks at that time
	numbers []uint64
	found   []found
}

// found is a record that is in memory.
type found struct {
	entry *entry
	index int
}

// mappedRecord is a record of a piece that is mapped.
type mappedRecord struct {
	entry *entry
	index int
}

// checkedShards are mapped files that were asked already. Where a loan has records
// of more than fit, some are asked twice.
type checkedShards [128]*mappedShard

// first says whether a mapped file was not asked yet.
func (c *checkedShards) first(s *mappedShard) bool {
	slot := &c[s.shard%len(c)]
	if *slot == s {
		return false
	}
	*slot = s
	return true
}

// Release gives everything back and empties l.
func (l *Loan) Release() {
	l.leased = false
	for i, s := range l.segs {
		s.Unpin()
		l.segs[i] = nil
	}
	for _, x := range l.mapped {
		x.entry.seg.pins.Unpin()
	}
	clear(l.mapped)
	clear(l.Records)
	l.segs, l.mapped, l.Records = l.segs[:0], l.mapped[:0], l.Records[:0]
}

// Mapped says that some of the loan's records lie in mapped files. Before such bytes
// are copied Leased is asked. They are copied by a goroutine that has set
// debug.SetPanicOnFault and recovers (a file that is truncated takes its pages
// away), and only given on after Check. They are never handed on as they lie.
func (l *Loan) Mapped() bool { return len(l.mapped) > 0 }

// Leased says whether all files of the loan's mapped records have leases. Then
// nobody alters them but after a break, which Check would know of.
func (l *Loan) Leased() bool {
	l.breaks = l.f.maps.mapper.Breaks()
	l.leased = true
	for _, x := range l.mapped {
		if s := x.entry.seg.shard; l.asked.first(s) && !s.mapping.Leased() {
			l.leased = false
			break
		}
	}
	clear(l.asked[:])
	return l.leased
}

// Check says whether what was copied from the loan's records so far is what was
// indexed: nil, or the error that Lend would give. Where it is not certain, it
// looks at each mapped file of the loan once.
func (l *Loan) Check() error {
	if len(l.mapped) == 0 || l.leased && l.f.maps.mapper.Unbroken(l.breaks) {
		return nil
	}
	defer clear(l.asked[:])
	for _, x := range l.mapped {
		if s := x.entry.seg.shard; l.asked.first(s) {
			if err := s.mapping.Check(); err != nil {
				return l.f.lost(x, err)
			}
		}
	}
	return nil
}

// lost gives the error for a record whose memory is gone.
func (l *Loan) lost(x mappedRecord) error {
	err := x.entry.seg.shard.mapping.Check()
	if err == nil {
		err = l.f.fault(x.entry.seg)
	}
	return l.f.lost(x, err)
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
	return l.lost(l.mapped[0])
}

// hold pins memory, unless that would make more than limit of those that
// were pinned from index from on, or it is dead.
func (l *Loan) hold(s *budget.Pins, from, limit int) bool {
	for i := len(l.segs) - 1; i >= from; i-- {
		if l.segs[i] == s {
			return true
		}
	}
	if len(l.segs)-from >= limit || !s.Pin() {
		return false
	}
	l.segs = append(l.segs, s)
	return true
}
