package read

import (
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Types that callers of Reader.Read use; see package pinned.
type (
	Loan        = pinned.Records
	Sequence    = pinned.Sequence
	RecordError = pinned.RecordError
)

// ErrTimeout is pinned.ErrTimeout, returned after Options.ReadTimeout.
var ErrTimeout = pinned.ErrTimeout

// Faulted runs touch, which accesses pinned records that are Mapped, and reports whether their
// memory was gone; Records.Fault then returns the error to report. Other panics propagate.
func Faulted(touch func()) (gone bool) { return mapped.Faulted(touch) }

// ErrReadAgain is wrapped by errors of records whose bytes were in a copy that is gone: if they are
// read again, they come from elsewhere.
var ErrReadAgain = storage.ErrReadAgain
