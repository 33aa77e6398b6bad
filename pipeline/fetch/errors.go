package fetch

import (
	"errors"
	"fmt"
)

// RecordError says which record could not be had.
type RecordError struct {
	Shard                  string
	Ordinal                uint64
	OffsetBytes, SizeBytes int64 // in the decoded shard
	Err                    error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("%s: record %d at [%d, %d): %v", e.Shard, e.Ordinal, e.OffsetBytes, e.OffsetBytes+e.SizeBytes, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// ErrTimeout is wrapped when storage has not given a range within
// Config.ReadTimeout.
var ErrTimeout = errors.New("storage has not answered within --read-timeout")

var (
	errClosed = errors.New("the fetcher is closed")
	// errNoRoom ends a load that was read ahead and found no memory. Nobody
	// gets to see it: a load that is waited for gets memory always.
	errNoRoom = errors.New("no memory to read ahead")
)
