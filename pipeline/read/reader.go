package read

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/gather"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Reader is one pass over a sequence, which may be read at any positions. Concurrent calls are
// allowed (a mapped file is read that way) and do not wait for each other's data.
type Reader struct {
	// Exactly one of them is set.
	scanned  *scan.Reader
	gathered *gather.Reader
}

// Subset is the set of records that an epoch has, with its number.
type Subset = chunkmap.Subset

// Open returns a reader of a sequence of records of Options.Part. Opening costs nothing: reading
// ahead starts with the calls of Read.
func (f *Fetcher) Open(seq Sequence) *Reader {
	return f.OpenPhase(seq, Subset{Number: f.o.Phase, Part: f.o.Part})
}

// OpenPhase is Open for records of another phase of a sampled dataset. Phases with the same number
// must have the same records; a nil Part has all.
func (f *Fetcher) OpenPhase(seq Sequence, phase Subset) *Reader {
	if phase.Part == nil {
		phase.Part = chunkmap.All{}
	}
	if f.scanner != nil {
		return &Reader{scanned: f.scanner.OpenPhase(seq, phase)}
	}
	return &Reader{gathered: f.gatherer.OpenPhase(seq, phase)}
}

// Close ends the pass. It is idempotent.
func (r *Reader) Close() {
	if r.scanned != nil {
		r.scanned.Close()
		return
	}
	r.gathered.Close()
}

// Contiguous reports whether pinned records mostly lie in memory one after the other, in the order
// in which they are delivered, with none of them on the Go heap or in a mapped file.
func (r *Reader) Contiguous() bool { return r.gathered != nil }

// Busy reports whether a service is still transferring records of the dataset into memory, or
// decoders are using all cores. Either keeps this machine's processors busy, with few left for
// anything else.
func (r *Reader) Busy() bool { return r.scanned != nil && r.scanned.Busy() }

// Read appends to l.Records the bytes of records k … k+n-1 of the sequence, as they are in the
// decoded shard (with a newline added to a last line that lacks one). It waits for records that are
// not in memory. It may return fewer than n records, but at least one, so that the pinned records
// stay within the budget.
//
// Errors: the context's; ErrTimeout; a *RecordError. If records before the failing one are
// available, Read returns these without an error; the error comes when the failing record is the
// first to be asked for. A failed call appends nothing and loses nothing, and may be repeated.
func (r *Reader) Read(ctx context.Context, k uint64, n int, l *Loan) error {
	if r.scanned != nil {
		return r.scanned.Read(ctx, k, n, l)
	}
	return r.gathered.Read(ctx, k, n, l)
}

// Options are the settings of a Fetcher. Callers of NewSurvey leave Input and Decisions empty.
type Options = options.Options

// SpoolOptions configures where and how compressed shards are spooled.
type SpoolOptions = options.Spool

// KeptShards are the shards that are decoded to a shelf.
type KeptShards = options.KeptShards

// DryStorage is what stands for a storage that computes records from others in a dry run, and
// DryCounts are its counts.
type (
	DryStorage = options.DryStorage
	DryCounts  = options.DryCounts
)

// Part is a subset of a catalog's records. The others are never asked for, so they are neither
// waited for nor kept. It is safe for concurrent use.
type Part = chunkmap.Part

// Memory is a budget that several fetchers share. Fetchers that are being read have equal shares;
// an idle one gives up nearly all of its share when another one needs it.
type Memory = budget.Shared

// NewMemory returns a budget of that many bytes.
func NewMemory(bytes int64) *Memory { return budget.NewShared(bytes) }

// Types that callers of Reader.Read use.
type (
	Loan        = budget.Records
	Sequence    = chunkmap.Sequence
	RecordError = chunkmap.RecordError
)

// ErrTimeout is options.ErrTimeout, returned after Options.ReadTimeout.
var ErrTimeout = options.ErrTimeout

// Faulted runs touch, which accesses pinned records that are Mapped, and reports whether their
// memory was gone; Records.Fault then returns the error to report. Other panics propagate.
func Faulted(touch func()) (gone bool) { return storage.Faulted(touch) }

// ErrReadAgain is wrapped by errors of records whose bytes were in a copy that is gone: if they are
// read again, they come from elsewhere.
var ErrReadAgain = storage.ErrReadAgain
