// Package stream makes byte files of a view's records: worker w's data, IDs and
// offsets, with exact sizes and reads at any place. It knows nothing of FUSE.
package stream

import (
	"context"
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch"
	"github.com/lsiofs/lsiofs/pipeline/order"
)

// Kind is one of the three files that a worker has.
type Kind uint8

const (
	Data    Kind = iota // prologue, records, epilogue
	IDs                 // 16 bytes a record
	Offsets             // n+1 little-endian uint64
)

// Set is all files of one view. It is immutable to its users and safe for
// concurrent use.
type Set struct {
	// fields belong to the implementation
}

// NewSet does no work yet: sizes are computed at the first call that needs
// them, once.
func NewSet(c *catalog.Catalog, v *order.View, f *fetch.Fetcher) *Set { panic(errNotBuilt) }

// View is the view that the files are of.
func (s *Set) View() *order.View { panic(errNotBuilt) }

// Workers is the number of workers.
func (s *Set) Workers() uint64 { return s.View().Deal().Workers }

// SizeBytes is the exact size of a file. The first call for data or offsets
// sweeps the order, about 30 ns a record.
func (s *Set) SizeBytes(ctx context.Context, w uint64, k Kind) (int64, error) { panic(errNotBuilt) }

// WholeRecords is how many whole records of worker w lie before mark, a number
// of bytes of a file of kind k, not counting padding.
func (s *Set) WholeRecords(ctx context.Context, w uint64, k Kind, mark int64) (uint64, error) {
	panic(errNotBuilt)
}

// Open gives a handle for reading a file; workers and kinds out of range panic.
func (s *Set) Open(w uint64, k Kind) *Handle { panic(errNotBuilt) }

// Handle is one opening of a file. ReadAt may be called concurrently.
type Handle struct {
	// fields belong to the implementation
}

// MaxSlices bounds Reply.Slices: up to about 64 a reply cost nothing, 1023 are
// refused by writev.
const MaxSlices = 64

// ReadAt fills r with the n bytes at off, fewer only at the file's end, none
// behind it, or returns an error and leaves r empty. n is at most MaxReadBytes.
// On success r must be released.
func (h *Handle) ReadAt(ctx context.Context, r *Reply, off int64, n int) error { panic(errNotBuilt) }

// MaxReadBytes bounds one ReadAt.
const MaxReadBytes = 1 << 20

// Close ends the opening. Replies that are out stay valid.
func (h *Handle) Close() { panic(errNotBuilt) }

// Reply is the answer to a read: at most MaxSlices slices, valid and not to be
// written to until Release. The zero value is ready; a Reply is reused without
// allocation.
type Reply struct {
	Slices [][]byte
	// further fields belong to the implementation
}

// Len is the number of bytes.
func (r *Reply) Len() int {
	n := 0
	for _, s := range r.Slices {
		n += len(s)
	}
	return n
}

// Release gives everything back and empties r.
func (r *Reply) Release() { panic(errNotBuilt) }

var errNotBuilt = errors.New("not built yet")
