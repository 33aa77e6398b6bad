package pinned

import (
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// RecordError names the record that can't be read.
type RecordError struct {
	Shard                  string
	Ordinal                uint64
	OffsetBytes, SizeBytes int64 // in the decoded shard
	Err                    error
}

func (e *RecordError) Error() string {
	cause := e.Err.Error()
	if s, ok := errors.AsType[*storage.Error](e.Err); ok && s.Object == e.Shard {
		// The shard is named already; the bytes are those of the whole read, which may have more.
		cause = s.Err.Error()
		if s.OffsetBytes != e.OffsetBytes || s.SizeBytes != e.SizeBytes {
			cause = fmt.Sprintf("bytes [%d, %d): %s", s.OffsetBytes, s.OffsetBytes+s.SizeBytes, cause)
		}
	}
	if damaged(e.Err) {
		cause += ": copy the file again or repair it; lsiofs verify finds all damage"
	}
	return fmt.Sprintf("%s: record %d at [%d, %d): %s", e.Shard, e.Ordinal, e.OffsetBytes, e.OffsetBytes+e.SizeBytes, cause)
}

func (e *RecordError) Unwrap() error { return e.Err }

// damaged reports whether an error is about the bytes that were read, and not about reading them.
func damaged(err error) bool {
	return errors.As(err, new(*format.CorruptError)) || errors.As(err, new(format.RecordDamage))
}

// ErrTimeout is wrapped if storage has not delivered a range within the time that a reader may wait
// for it.
var ErrTimeout = errors.New("storage has not answered within --read-timeout")

// NameRecord returns the error of a record number for a cause that does not name the record.
func NameRecord(x chunkmap.Index, record uint64, cause error) *RecordError {
	at := place(x, record)
	return &RecordError{
		Shard: x.Shard(at.Shard).Object.Path, Ordinal: at.Ordinal,
		OffsetBytes: at.OffsetBytes, SizeBytes: at.SizeBytes, Err: cause,
	}
}

// ShardOf returns the name of a record's shard.
func ShardOf(x chunkmap.Index, record uint64) string {
	return x.Shard(place(x, record).Shard).Object.Path
}

func place(x chunkmap.Index, record uint64) catalog.Extent {
	var at [1]catalog.Extent
	x.Extents([]uint64{record}, at[:])
	return at[0]
}
