package chunkmap

import (
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Sequence is the list of records that a reader reads: one worker's stream. Implementations are
// safe for concurrent use.
type Sequence interface {
	// Len returns the number of records.
	Len() uint64
	// Records fills dst with the numbers of records k, k+1, …, and returns how many there were.
	Records(k uint64, dst []uint64) int
}

// Epochal is implemented by sequences of a numbered epoch. Storages whose bytes depend on the epoch
// are told its number (storage.Read.Epoch).
type Epochal interface{ Epoch() uint64 }

// EpochOf returns the epoch of a sequence; 0 if it has none.
func EpochOf(seq Sequence) uint64 {
	if e, ok := seq.(Epochal); ok {
		return e.Epoch()
	}
	return 0
}

// Clip returns how many of the records k … k+n-1 a sequence has, and an error if it has none of
// them.
func Clip(seq Sequence, k uint64, n int) (int, error) {
	total := seq.Len()
	if n <= 0 || k >= total {
		return 0, fmt.Errorf("lend %d records from %d on: the sequence has %d", n, k, total)
	}
	return int(min(uint64(n), total-k)), nil
}

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

// NameRecord returns the error of a record number for a cause that does not name the record.
func NameRecord(x Index, record uint64, cause error) *RecordError {
	at := extentOf(x, record)
	return &RecordError{
		Shard: x.Shard(at.Shard).Object.Path, Ordinal: at.Ordinal,
		OffsetBytes: at.OffsetBytes, SizeBytes: at.SizeBytes, Err: cause,
	}
}

// ShardOf returns the name of a record's shard.
func ShardOf(x Index, record uint64) string {
	return x.Shard(extentOf(x, record).Shard).Object.Path
}

func extentOf(x Index, record uint64) catalog.Extent {
	var at [1]catalog.Extent
	x.Extents([]uint64{record}, at[:])
	return at[0]
}
