package fetch

import (
	"github.com/lsiofs/lsiofs/pipeline/fetch/loan"
	"github.com/lsiofs/lsiofs/pipeline/fetch/mapped"
)

// What callers of Reader.Lend deal with is package loan's.
type (
	Loan        = loan.Loan
	Sequence    = loan.Sequence
	RecordError = loan.RecordError
)

// ErrTimeout is loan.ErrTimeout, after Config.ReadTimeout.
var ErrTimeout = loan.ErrTimeout

// Faulted runs what touches the records of a loan that is Mapped, and says whether
// their memory was gone: then Loan.Fault tells what to report. Other panics go on.
func Faulted(touch func()) (gone bool) { return mapped.Faulted(touch) }

// lending is what a loan has of a reader that scans. It is used again with the loan.
type lending struct {
	mapped.Lent
	numbers []uint64
	found   []found
}

var _ loan.Lender = (*lending)(nil)

// lendingOf is a loan's.
func lendingOf(l *Loan) *lending {
	own, ok := l.Lender.(*lending)
	if !ok {
		own = new(lending)
		l.Lender = own
	}
	return own
}

// found is a record that is in memory.
type found struct {
	entry *entry
	index int
}
