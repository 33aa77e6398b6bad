package fetch

import (
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// RecordError says which record could not be had.
type RecordError struct {
	Shard                  string
	Ordinal                uint64
	OffsetBytes, SizeBytes int64 // in the decoded shard
	Err                    error
}

func (e *RecordError) Error() string {
	cause := e.Err.Error()
	if s, ok := errors.AsType[*storage.Error](e.Err); ok && s.Object == e.Shard {
		// The shard is named already; the bytes are those of the whole read.
		cause = fmt.Sprintf("bytes [%d, %d): %v", s.OffsetBytes, s.OffsetBytes+s.SizeBytes, s.Err)
	}
	return fmt.Sprintf("%s: record %d at [%d, %d): %s", e.Shard, e.Ordinal, e.OffsetBytes, e.OffsetBytes+e.SizeBytes, cause)
}

func (e *RecordError) Unwrap() error { return e.Err }

// ErrTimeout is wrapped when storage has not given a range within
// Config.ReadTimeout.
var ErrTimeout = errors.New("storage has not answered within --read-timeout")

var (
	errClosed = errors.New("the fetcher is closed")
	// errCalledOff ends a load that nobody wants any more. Nobody gets to see
	// it: who wants its piece later starts another one.
	errCalledOff = errors.New("the piece is not wanted any more")
	// errDamaged ends the decoding of a shard into the spool that did not come back
	// as it was written. Nobody gets to see it.
	errDamaged = errors.New("the shard is damaged in the spool")
)
