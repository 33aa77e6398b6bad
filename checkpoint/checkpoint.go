// Package checkpoint reads and writes checkpoints: JSON documents that record how far an epoch has
// been read. It validates them against a dataset, merges them, and writes them to files atomically.
// It is independent of mounts.
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
// and two short forms, {"epoch": 3} and {"epoch": 3, "samples": 20480}. Resolve reads all three.
// With a split, order ends with "split": {"part": "0..0.9", "seed": 0, "by": "record"}; for a
// mixture, "length": 25600 follows, the positions of an epoch; with a sample, order ends with
// "sample": {"of": 39, "seed": 0}. For a dataset that grows, "run": "<32 hexadecimal digits>"
// follows dataset. Fields may be in any order, with any white space. Names are case-sensitive, and
// each may occur only once.
//
// All functions except WriteFile are pure.
package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Version is the version of the document.
const Version = 1

// Limits of a document. A larger one is an ErrTooLarge.
const (
	MaxEntries = 1024
	MaxBytes   = 16 << 20
)

// State is the full form of a document.
type State struct {
	Dataset string // fingerprint
	// Run is the run in which the epoch is recorded if the dataset grows: 32 hexadecimal digits.
	// Otherwise it is "", and the document has no such field.
	Run   string
	Order spec.Order
	Epoch uint64
	// Done lists what was consumed. The last entry is what the workers of the mount that wrote the
	// document have received. Restoring applies all entries.
	Done []order.Done
}

// Subject is the dataset and the order that a document is checked against.
type Subject struct {
	Dataset string
	Run     string // see State.Run
	Order   spec.Order
	Records uint64 // T, the number of records in the order
	// At, if set, returns Dataset and Records for an epoch, for datasets in which epochs differ.
	// Its errors become the reasons of refusals.
	At func(epoch uint64) (dataset string, records uint64, err error)
	// Deal is that of the restoring mount, whose own entry must fit the limits too. It also
	// determines how far padding may bring a count of samples beyond the number of records.
	Deal spec.Assignment
	// Explain, if set, describes how the dataset with another fingerprint differs; it returns "" if
	// that is unknown.
	Explain func(fingerprint string) string
}

// Position is where a mount resumes: an epoch, and the resumes to apply to it, in canonical form
// (order.Simplify). It has no entry for the restoring mount itself.
type Position struct {
	Epoch uint64
	Done  []order.Done
}

// Live returns the state of a mount that resumed from p, and whose workers have received consumed
// records each, assigned by d; padding is not counted. The result shares consumed and the entries
// of p.
func Live(s Subject, p Position, d spec.Assignment, consumed []uint64) State {
	remaining := s.Records
	for _, entry := range p.Done {
		remaining -= entry.Taken()
	}
	return State{
		Dataset: s.Dataset, Run: s.Run, Order: s.Order, Epoch: p.Epoch,
		Done: append(slices.Clone(p.Done), order.Given(s.Order, remaining, d, consumed)),
	}
}

// Refusal is the error for a document that can't be restored. Its text has the reason and the next
// step for the user.
type Refusal struct {
	Reason string
	cause  error // ErrTooLarge, ErrIncomplete or nil
}

func (r *Refusal) Error() string { return "checkpoint refused: " + r.Reason }

func (r *Refusal) Unwrap() error { return r.cause }

// ErrTooLarge is wrapped by errors about a document, or a list of entries, that exceeds the limits.
// The control file returns EFBIG for it.
var ErrTooLarge = errors.New("the document is too large")

// ErrIncomplete is wrapped by errors about a document that ends too early.
var ErrIncomplete = errors.New("the document is incomplete")

// WriteFile writes a document to path atomically: a temporary file in path's directory, fsync,
// rename, fsync of the directory. The mode is 0600. A symbolic link at path is replaced, not
// followed; but if path, after following links, is a directory, device or pipe (/dev/stdout is a
// link to one), WriteFile returns an error. If it fails before the rename, path is unchanged and
// the temporary file is removed.
func WriteFile(path string, doc []byte) error {
	dir := filepath.Dir(path)
	// Stat follows links; a dangling link is replaced.
	if there, err := os.Stat(path); err == nil && !there.Mode().IsRegular() {
		if there.IsDir() {
			return fmt.Errorf("save %s: it is a directory; name a file", path)
		}
		return fmt.Errorf("save %s: it is not a regular file; name another file", path)
	}
	// CreateTemp opens with O_EXCL and 0600, under an unpredictable name.
	temp, err := os.CreateTemp(dir, ".lsiofs-checkpoint-*")
	if err != nil {
		if cause := (*os.PathError)(nil); errors.As(err, &cause) { // its path is the temporary file
			err = fmt.Errorf("directory %s: %w", dir, cause.Err)
		}
		return fmt.Errorf("save %s: %w", path, err)
	}
	err = fill(temp, doc)
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(temp.Name()))
		return fmt.Errorf("save %s: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("%s is saved, but may not survive a power failure: %w", path, err)
	}
	return nil
}

// fill writes doc, makes it durable and closes the file.
func fill(f *os.File, doc []byte) error {
	_, err := f.Write(doc)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a rename durable, if the file system supports that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
