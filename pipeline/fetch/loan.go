package fetch

import "github.com/lsiofs/lsiofs/pipeline/fetch/loan"

// What callers of Reader.Lend deal with is package loan's.
type (
	Loan        = loan.Loan
	Sequence    = loan.Sequence
	RecordError = loan.RecordError
)

// ErrTimeout is loan.ErrTimeout, after Config.ReadTimeout.
var ErrTimeout = loan.ErrTimeout

// lending is what a loan has of a reader that scans. It is used again with the loan.
type lending struct {
	f       *Fetcher
	mapped  []mappedRecord // each has a pin of its own
	asked   checkedShards
	leased  bool   // Leased has said yes
	breaks  uint64 // Leaser.Breaks at that time
	numbers []uint64
	found   []found
}

var _ loan.Lender = (*lending)(nil)

// lendingOf is a loan's part of this fetcher.
func (f *Fetcher) lendingOf(l *Loan) *lending {
	own, ok := l.Lender.(*lending)
	if !ok {
		own = new(lending)
		l.Lender = own
	}
	own.f = f
	return own
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

// Release unmaps nothing: it takes the pins of mapped pieces back.
func (l *lending) Release() {
	l.leased = false
	for _, x := range l.mapped {
		x.entry.seg.Pins.Unpin()
	}
	clear(l.mapped)
	l.mapped = l.mapped[:0]
}

// Mapped is loan.Loan's.
func (l *lending) Mapped() bool { return len(l.mapped) > 0 }

// Leased is loan.Loan's.
func (l *lending) Leased() bool {
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

// Check is loan.Loan's.
func (l *lending) Check() error {
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
func (l *lending) lost(x mappedRecord) error {
	err := x.entry.seg.shard.mapping.Check()
	if err == nil {
		err = l.f.fault(x.entry.seg)
	}
	return l.f.lost(x, err)
}

// Fault is loan.Loan's.
func (l *lending) Fault() error {
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
