package read

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/gather"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
)

// Reader is one pass over a sequence, from anywhere to anywhere. Calls from
// several goroutines are allowed (a file that is mapped is read so) and do not
// wait for each other's data.
type Reader struct {
	// One of the two reads.
	scanned  *scan.Reader
	gathered *gather.Reader
}

// Subset is the part of the records that an epoch has, with its number.
type Subset = chunkmap.Subset

// Open gives a reader of a sequence of records of Config.Part. Opening costs nothing: what
// is read ahead follows the calls of Read.
func (f *Fetcher) Open(seq Sequence) *Reader {
	return f.OpenPhase(seq, Subset{Number: f.config.Phase, Part: f.config.Part})
}

// OpenPhase is Open for records of another phase of a dataset that is sampled. Phases of
// one number are the same records; a Part that is nil has all.
func (f *Fetcher) OpenPhase(seq Sequence, phase Subset) *Reader {
	if phase.Part == nil {
		phase.Part = everything{}
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

// Contiguous says that records of loans mostly lie in memory one behind the other, as
// they go out, and that none of it is of Go's heap or of a file.
func (r *Reader) Contiguous() bool { return r.gathered != nil }

// Busy says that a service is still bringing records of the dataset into memory, or that
// decoders are at work on all cores. Both keep processors busy: those of this machine that are
// free for anything else are few.
func (r *Reader) Busy() bool { return r.scanned != nil && r.scanned.Busy() }

// Read appends to l.Records the bytes of records k … k+n-1 of the sequence,
// as they are in the decoded shard (a last line's missing newline added). It
// waits for those that are not in memory. It may lend fewer than n, but at
// least one, so that what is lent at a time stays within the budget.
//
// Errors: the context's; ErrTimeout; a *RecordError. When records before the
// one that fails are at hand, those are lent and there is no error: it comes
// when the failing record is asked for first. A failed call lends nothing and
// loses nothing; the same call may be made again.
func (r *Reader) Read(ctx context.Context, k uint64, n int, l *Loan) error {
	if r.scanned != nil {
		return r.scanned.Read(ctx, k, n, l)
	}
	return r.gathered.Read(ctx, k, n, l)
}
