// Package checkpoint is the document that says how far an epoch has been read:
// its JSON, its validation against a dataset, merging, and files of it written
// whole or not at all. It knows nothing of mounts.
package checkpoint

import (
	"errors"

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
	Records uint64 // T
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

// Marshal writes the document. Numbers in consumed are right-aligned to the
// digits of records, so that the size is the same for every state that differs
// in those numbers only. The result ends with a newline.
func (s State) Marshal(records uint64) []byte { panic(errNotBuilt) }

// Parse reads the full form alone, strictly.
func Parse(doc []byte) (State, error) { return State{}, errNotBuilt }

// Resolve reads either form and judges it against s: *Refusal says in words
// why it can't be restored.
func Resolve(doc []byte, s Subject) (Position, error) { return Position{}, errNotBuilt }

// Possible says whether doc may still become a document when more bytes
// follow: nil, or why not. The control file asks it after every write.
func Possible(doc []byte) error { return errNotBuilt }

// Merge makes one state of states that agree in dataset, order, epoch and all
// entries but the last, whose numbers it takes element by element, the greatest.
func Merge(states []State) (State, error) { return State{}, errNotBuilt }

// WriteFile writes a document to path whole or not at all: a temporary file in
// path's directory, fsync, rename, fsync of the directory. Mode 0600.
func WriteFile(path string, doc []byte) error { return errNotBuilt }

// Refusal is a document that can't be restored, with the reason and the next
// step in words.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return "checkpoint refused: " + r.Reason }

// ErrTooLarge is wrapped when a document or its list of entries is beyond the
// limits; the control file answers EFBIG.
var ErrTooLarge = errors.New("checkpoint is too large")

// ErrIncomplete is wrapped when a document ends before it is complete.
var ErrIncomplete = errors.New("checkpoint is incomplete")

var errNotBuilt = errors.New("not built yet")
