package fetch

import (
	"github.com/lsiofs/lsiofs/pipeline/fetch/loan"
	"github.com/lsiofs/lsiofs/pipeline/fetch/mapped"
	"github.com/lsiofs/lsiofs/pipeline/storage"
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

// ErrReadAgain is wrapped by errors of loans whose bytes lay in a copy that has gone: lent
// once more, they come from elsewhere.
var ErrReadAgain = storage.ErrReadAgain
