package read

import (
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// What callers of Reader.Read deal with is package pinned's.
type (
	Loan        = pinned.Records
	Sequence    = pinned.Sequence
	RecordError = pinned.RecordError
)

// ErrTimeout is pinned.ErrTimeout, after Config.ReadTimeout.
var ErrTimeout = pinned.ErrTimeout

// Faulted runs what touches the records of a loan that is Mapped, and says whether
// their memory was gone: then Loan.Fault tells what to report. Other panics go on.
func Faulted(touch func()) (gone bool) { return mapped.Faulted(touch) }

// ErrReadAgain is wrapped by errors of loans whose bytes lay in a copy that has gone: lent
// once more, they come from elsewhere.
var ErrReadAgain = storage.ErrReadAgain
