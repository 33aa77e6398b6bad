// Package order is ORDER.md: which record comes when, and for whom. It is pure:
// no I/O, no goroutines, no clock. Records are named by their number in dataset
// order, 0 … T-1.
//
// An Epoch is G. A View is what is left of G after a number of resumes, dealt
// to workers: the sequence of records of each worker's file.
package order

import (
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Done is one application of the resume rule: len(Consumed) workers, dealt in
// that batch and dealing, took so many records each.
type Done struct {
	Batch    uint64
	Dealing  spec.Dealing
	Consumed []uint64
}

// Epoch is the global order G of one epoch. It is immutable to its users and
// safe for concurrent use; inside, states of the reservoirs are kept every so
// many positions, so that any position is reached by a short replay.
type Epoch struct {
	// fields belong to the implementation
}

// NewEpoch makes the order of epoch. starts are the first records of the
// chunks, ascending, and T at the end; it is kept, and must not change. Options
// that ORDER.md does not allow, or starts that do not ascend from 0, are errors.
func NewEpoch(o spec.Order, epoch uint64, starts []uint64) (*Epoch, error) {
	return nil, errNotBuilt
}

// Len is T.
func (e *Epoch) Len() uint64 { panic(errNotBuilt) }

// Cursor is a place in G. It is not for concurrent use.
type Cursor struct {
	// fields belong to the implementation
}

// Cursor gives a cursor at position p ≤ T.
func (e *Epoch) Cursor(p uint64) *Cursor { panic(errNotBuilt) }

// Next fills dst with the records at the cursor's position and following, and
// moves behind them; it returns fewer than len(dst) only at the end.
func (c *Cursor) Next(dst []uint64) int { panic(errNotBuilt) }

// Seek moves to position p: backwards from the nearest state kept, forwards
// from there or from where the cursor is.
func (c *Cursor) Seek(p uint64) { panic(errNotBuilt) }

// View is G′ dealt to workers. It is immutable to its users and safe for
// concurrent use; inside, it caches a bounded number of pages of G′ (at most
// 8 MiB), so that readers that go through a view together compute it once.
type View struct {
	// fields belong to the implementation
}

// NewView applies done to e in turn and deals what is left. Entries that are
// impossible (a worker that took more than it had) are errors naming the entry.
func NewView(e *Epoch, done []Done, deal spec.Deal) (*View, error) { return nil, errNotBuilt }

// Remaining is |G′|, before the tail rule.
func (v *View) Remaining() uint64 { panic(errNotBuilt) }

// Dealt is the number of records that all workers have together, after the
// tail rule.
func (v *View) Dealt() uint64 { panic(errNotBuilt) }

// Deal is what NewView was given.
func (v *View) Deal() spec.Deal { panic(errNotBuilt) }

// Count is the number of records of worker w's stream, after the tail rule.
func (v *View) Count(w uint64) uint64 { panic(errNotBuilt) }

// Own is Count without padding: how many of its records, from the first on,
// belong to G′. Padding is never counted as consumed.
func (v *View) Own(w uint64) uint64 { panic(errNotBuilt) }

// Records fills dst with the numbers of records k, k+1, … of worker w's stream,
// and returns how many there were. No allocation while pages are at hand.
func (v *View) Records(w, k uint64, dst []uint64) int { panic(errNotBuilt) }

// Sweep calls visit with all dealt records, padding included, in the order of
// their index j in G′ (padding: j ≥ Remaining), in blocks; it ends early when
// visit returns false. It does not disturb the pages that readers use.
func (v *View) Sweep(visit func(j uint64, records []uint64) bool) { panic(errNotBuilt) }

// Owner is the worker that gets index j of G′ (or of its padding), and which of
// the worker's records that is.
func (v *View) Owner(j uint64) (w, k uint64) { panic(errNotBuilt) }

// Simplify gives the canonical form of done that DESIGN.md describes: entries
// of zeros dropped, an entry that took a prefix written as {batch 1, [n]} (with
// groups > 1: the order's batch), two such in a row made one. total is T.
// Entries that are impossible are errors naming the entry.
func Simplify(total uint64, o spec.Order, done []Done) ([]Done, error) { return nil, errNotBuilt }

// ID is a record's identity: the first 8 bytes (big-endian number) of SHA-256
// over `lsiofs/1 shard <path>`; the ordinal follows it, big-endian.
func ID(path string) uint64 { panic(errNotBuilt) }

var errNotBuilt = errors.New("not built yet")
