// Package checkpoint reads and writes checkpoints: JSON documents that say how far an
// epoch has been read. It validates them against a dataset, merges them, and writes them
// to files atomically. It knows nothing of mounts.
//
//	consumed records ──Live──► State ──Marshal──► document ──WriteFile──► file
//	document ──Parse──► State ──Resolve──► Position (epoch, resumes) or *Refusal
//
// A document has a full form, which Marshal writes and Parse reads,
//
//	{"version": 1, "dataset": "<fingerprint>",
//	 "order": {"seed": 42, "shuffle": "reservoir", "size": 16384, "lanes": 32, "groups": 1, "batch": 1, "chunk_bytes": 262144, "chunk_records": 128},
//	 "epoch": 0, "done": [{"batch": 1, "consumed": [   5120,    5119,    5120,    5118]}]}
//
// and two short forms, {"epoch": 3} and {"epoch": 3, "samples": 20480}. Resolve reads
// all three. With a split, order ends with "split": {"part": "0..0.9", "seed": 0, "by":
// "record"}; of a mixture, "length": 25600 follows, the positions of an epoch; with a
// sample, order ends with "sample": {"of": 39, "seed": 0}. Of a dataset that grows there is
// "run": "<32 hexadecimal digits>" behind dataset. Fields may come in any order, with any
// white space. Names are case-sensitive, and each may come only once.
//
// All functions but WriteFile are pure.
package checkpoint

import (
	"errors"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Version is the version of the document.
const Version = 1

// Limits of a document. Beyond them the error is ErrTooLarge.
const (
	MaxEntries = 1024
	MaxBytes   = 16 << 20
)

// State is the full form of a document.
type State struct {
	Dataset string // fingerprint
	// Run names the run that the epoch is recorded in, where the dataset grows: 32 hexadecimal
	// digits. Else it is "", and the document has no such field.
	Run   string
	Order spec.Order
	Epoch uint64
	// Done says what was consumed. Its last entry is what the workers of the mount that
	// wrote the document have been given. Restoring applies all entries.
	Done []order.Done
}

// Subject is the dataset and the order that a document is checked against.
type Subject struct {
	Dataset string
	Run     string // see State.Run
	Order   spec.Order
	Records uint64 // T, the number of records in the order
	// At, if set, gives both for an epoch, of those where epochs differ. Its errors are
	// the reasons of refusals.
	At func(epoch uint64) (dataset string, records uint64, err error)
	// Deal is that of the restoring mount, whose own entry must fit the limits too. It also
	// says how far beyond the records padding may have brought a count of samples.
	Deal spec.Deal
	// Explain, if set, says in words how the dataset with another fingerprint differs,
	// or "" if that can't be told.
	Explain func(fingerprint string) string
}

// Position is where a mount resumes: an epoch, and the resumes to apply to it, in
// canonical form (order.Simplify). It has no entry for the mount that restores.
type Position struct {
	Epoch uint64
	Done  []order.Done
}

// Live is the state of a mount that resumed from p, and whose workers have been given
// consumed records each, assigned by d; padding is not counted. The result shares
// consumed and the entries of p.
func Live(s Subject, p Position, d spec.Deal, consumed []uint64) State {
	remaining := s.Records
	for _, entry := range p.Done {
		remaining -= entry.Taken()
	}
	return State{
		Dataset: s.Dataset, Run: s.Run, Order: s.Order, Epoch: p.Epoch,
		Done: append(slices.Clone(p.Done), order.Given(s.Order, remaining, d, consumed)),
	}
}

// Refusal is the error for a document that can't be restored. It says in words why, and
// what to do next.
type Refusal struct {
	Reason string
	cause  error // ErrTooLarge, ErrIncomplete or nil
}

func (r *Refusal) Error() string { return "checkpoint refused: " + r.Reason }

func (r *Refusal) Unwrap() error { return r.cause }

// ErrTooLarge is wrapped when a document, or its list of entries, exceeds the limits.
// The control file answers EFBIG.
var ErrTooLarge = errors.New("the document is too large")

// ErrIncomplete is wrapped when a document ends too early.
var ErrIncomplete = errors.New("the document is incomplete")
