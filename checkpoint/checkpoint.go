// Package checkpoint is the document that says how far an epoch has been read:
// its JSON, its validation against a dataset, merging, and files of it written
// whole or not at all. It knows nothing of mounts.
//
// A document has a full form, which Marshal writes and Parse reads,
//
//	{"version": 1, "dataset": "<fingerprint>",
//	 "order": {"seed": 42, "shuffle": "reservoir", "size": 16384, "lanes": 32, "groups": 1, "batch": 1, "chunk_bytes": 262144, "chunk_records": 128},
//	 "epoch": 0, "done": [{"batch": 1, "consumed": [   5120,    5119,    5120,    5118]}]}
//
// (where there is a split, order ends with "split": {"part": "0..0.9", "seed": 0,
// "by": "record"}) and two short forms, {"epoch": 3} and {"epoch": 3, "samples": 20480}. Resolve
// reads all three. Fields may come in any order, with any white space; names
// are case-sensitive, and each comes once.
//
// Everything here is a pure function of its arguments, but for WriteFile.
package checkpoint

import (
	"errors"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Version is the version of the document.
const Version = 1

// Limits of a document; beyond them ErrTooLarge.
const (
	MaxEntries = 1024
	MaxBytes   = 16 << 20
)

// State is the full form of the document.
type State struct {
	Dataset string // fingerprint
	Order   spec.Order
	Epoch   uint64
	// Done's last entry is what the workers of the mount that wrote it have
	// been given; restoring applies all of them.
	Done []order.Done
}

// Subject is what a document is judged against.
type Subject struct {
	Dataset string
	Order   spec.Order
	Records uint64 // T, of what a split leaves
	// Workers, when above 0, is how many workers the restoring mount has: its
	// own entry has to fit the limits, too.
	Workers uint64
	// Explain, when set, says in words how the dataset with another
	// fingerprint differs, "" when it can't tell.
	Explain func(fingerprint string) string
}

// Position is where a document says that a mount goes on: an epoch and the
// resumes to apply, in canonical form (order.Simplify), without an entry for
// the mount that restores.
type Position struct {
	Epoch uint64
	Done  []order.Done
}

// Live is the state of a mount that went on from p and whose workers, dealt as
// d says, have been given consumed records each, padding not counted. It
// shares consumed and the entries of p.
func Live(s Subject, p Position, d spec.Deal, consumed []uint64) State {
	remaining := s.Records
	for _, entry := range p.Done {
		remaining -= entry.Taken()
	}
	return State{
		Dataset: s.Dataset, Order: s.Order, Epoch: p.Epoch,
		Done: append(slices.Clone(p.Done), order.Given(s.Order, remaining, d, consumed)),
	}
}

// Refusal is a document that can't be restored, with the reason and the next
// step in words.
type Refusal struct {
	Reason string
	cause  error // ErrTooLarge, ErrIncomplete or nil
}

func (r *Refusal) Error() string { return "checkpoint refused: " + r.Reason }

func (r *Refusal) Unwrap() error { return r.cause }

// ErrTooLarge is wrapped when a document or its list of entries is beyond the
// limits; the control file answers EFBIG.
var ErrTooLarge = errors.New("checkpoint is too large")

// ErrIncomplete is wrapped when a document ends before it is complete.
var ErrIncomplete = errors.New("checkpoint is incomplete")
