// Package fetch turns references in order into record bytes in the same order,
// inside one memory budget. It knows nothing of what the bytes mean.
package fetch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Sequence is the list of records that a reader goes through: one worker's
// stream. Implementations are safe for concurrent use.
type Sequence interface {
	// Len is the number of records.
	Len() uint64
	// Records fills dst with the numbers of records k, k+1, …, and returns how
	// many there were.
	Records(k uint64, dst []uint64) int
}

// Config of a Fetcher.
type Config struct {
	// MemoryBytes is the budget for everything that is kept of the data, for
	// all readers together.
	MemoryBytes int64
	// ReadTimeout is after how long a reader that waits for a range gets
	// ErrTimeout; the read itself goes on.
	ReadTimeout time.Duration
	// PieceBytes and PieceRecords are the order's chunk_bytes and
	// chunk_records: pieces are then what the order calls chunks.
	PieceBytes, PieceRecords uint64
	Log                      *slog.Logger
}

// Fetcher reads the pieces of one dataset once for all readers, keeps records
// until they have gone out, and drops them when the budget says so. It is safe
// for concurrent use.
type Fetcher struct {
	// fields belong to the implementation
}

// New starts a fetcher. The catalog and the storage stay the caller's.
func New(c *catalog.Catalog, s storage.Storage, cfg Config) (*Fetcher, error) {
	return nil, errNotBuilt
}

// Close stops reading ahead, waits for what is under way and frees the memory.
// No Loan may be out and no Reader in use.
func (f *Fetcher) Close() error { panic(errNotBuilt) }

// Stats is a snapshot for status and metrics.
type Stats struct {
	Strategy      string   `json:"strategy"` // "scan"
	BudgetBytes   int64    `json:"budget_bytes"`
	HeldBytes     int64    `json:"held_bytes"` // of memory, now
	PiecesRead    uint64   `json:"pieces_read"`
	PiecesReread  uint64   `json:"pieces_reread"` // read again because they had been dropped
	PiecesDropped uint64   `json:"pieces_dropped"`
	BytesRead     uint64   `json:"bytes_read"` // decoded
	RecordsOut    uint64   `json:"records_out"`
	BytesOut      uint64   `json:"bytes_out"`
	Hits          uint64   `json:"hits"`  // records that were in memory when wanted
	Waits         uint64   `json:"waits"` // records that a reader had to wait for
	WaitNanos     uint64   `json:"wait_nanos"`
	LoadsInFlight int64    `json:"loads_in_flight"`
	OpenDecoders  int64    `json:"open_decoders"`
	Errors        uint64   `json:"errors"`
	LastErrors    []string `json:"last_errors"` // a few, newest last
}

func (f *Fetcher) Stats() Stats { panic(errNotBuilt) }

// Open gives a reader of a sequence. Opening costs nothing: what is read ahead
// follows the calls of Lend.
func (f *Fetcher) Open(seq Sequence) *Reader { panic(errNotBuilt) }

// Reader is one pass over a sequence, from anywhere to anywhere. Calls from
// several goroutines are allowed (a file that is mapped is read so) and do not
// wait for each other's data.
type Reader struct {
	// fields belong to the implementation
}

// Lend appends to l.Records the bytes of records k … k+n-1 of the sequence,
// as they are in the decoded shard (a last line's missing newline added). It
// waits for those that are not in memory. It may lend fewer than n, but at
// least one, so that what is lent at a time stays within the budget.
//
// Errors: the context's; ErrTimeout; a *RecordError. When records before the
// one that fails are at hand, those are lent and there is no error: it comes
// when the failing record is asked for first. A failed call lends nothing and
// loses nothing; the same call may be made again.
func (r *Reader) Lend(ctx context.Context, k uint64, n int, l *Loan) error { panic(errNotBuilt) }

// Close ends the pass.
func (r *Reader) Close() { panic(errNotBuilt) }

// Loan is bytes lent to a caller: valid, and not to be written to, until
// Release. A Loan is reused without allocation.
type Loan struct {
	Records [][]byte
	// further fields belong to the implementation
}

// Release gives everything back and empties l.
func (l *Loan) Release() { panic(errNotBuilt) }

// RecordError says which record could not be had.
type RecordError struct {
	Shard                  string
	Ordinal                uint64
	OffsetBytes, SizeBytes int64 // in the decoded shard
	Err                    error
}

func (e *RecordError) Error() string { return e.Shard + ": " + e.Err.Error() }
func (e *RecordError) Unwrap() error { return e.Err }

// ErrTimeout is wrapped when storage has not given a range within
// Config.ReadTimeout.
var ErrTimeout = errors.New("storage has not answered within --read-timeout")

var errNotBuilt = errors.New("not built yet")
