package read

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/gather"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
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
