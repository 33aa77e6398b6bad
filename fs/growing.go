package fs

import (
	"context"
	"errors"
	"strings"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// growing is what a growing dataset implements in addition to Dataset. A *pipeline.Dataset is one
// if Grows returns true.
type growing interface {
	Grows() bool
	// Run identifies its run, as in checkpoints.
	Run() string
	// HasEpoch reports whether an epoch may be asked for, Started whether it has started. CanTake
	// returns nil if it has, or could start now. None of them starts an epoch.
	HasEpoch(epoch uint64) bool
	Started(epoch uint64) bool
	CanTake(ctx context.Context, epoch uint64) error
	// EpochFingerprint starts the epoch if it is the next one.
	EpochFingerprint(ctx context.Context, epoch uint64) (string, error)
	// Begin makes the worker files those of an epoch.
	Begin(ctx context.Context, epoch uint64) error
}

// growingOf returns d as a growing dataset, nil for others.
func growingOf(d Dataset) growing {
	if g, can := d.(growing); can && g.Grows() {
		return g
	}
	return nil
}

// differ reports whether epochs have different records.
func (t *tree) differ() bool { return t.growing != nil || t.sampled() }

// hasEpoch reports whether the name epoch-N exists.
func (t *tree) hasEpoch(epoch uint64) bool { return t.growing == nil || t.growing.HasEpoch(epoch) }

// taken reports whether an epoch has started.
func (t *tree) taken(epoch uint64) bool { return t.growing == nil || t.growing.Started(epoch) }

// fingerprintOf is the fingerprint of an epoch. Like all that asks for an epoch, it may have to
// wait for the epoch's shards to be indexed.
func (t *tree) fingerprintOf(ctx context.Context, epoch uint64) (string, error) {
	if t.growing == nil {
		return t.fingerprint, nil
	}
	return t.growing.EpochFingerprint(ctx, epoch)
}

// judgedBy is the subject against which documents are judged.
func (t *tree) judgedBy(ctx context.Context) checkpoint.Subject {
	s := t.subject
	if t.differ() {
		s.At = func(epoch uint64) (fingerprint string, records uint64, err error) {
			if fingerprint, err = t.fingerprintOf(ctx, epoch); err == nil {
				records, err = t.recordsOf(ctx, epoch)
			}
			return fingerprint, records, err
		}
	}
	return s
}

// rewordedError is an error with another text.
type rewordedError struct {
	error
	text string
}

func (e *rewordedError) Error() string { return e.text }
func (e *rewordedError) Unwrap() error { return e.error }

// reworded returns an error with the advice for growing datasets. An error about a changed shard
// advises to mount again, which does not help here: the epoch would still lack the shard.
func reworded(err error) error {
	if !errors.Is(err, storage.ErrChanged) {
		return err
	}
	return &rewordedError{err, rewordedText(err.Error())}
}

func rewordedText(text string) string {
	return strings.ReplaceAll(text, storage.ErrChanged.Error(), "changed since it was indexed: continue with the next epoch (lsiofs next)")
}

// cropped is what a dataset of crops implements in addition to Dataset. A *pipeline.Dataset is one
// if Crops returns true.
type cropped interface {
	// Crops reports whether records are crops of arrays, so that workers have files of
	// stream.Crops.
	Crops() bool
	// Cubes returns the paths of the cubes that crops are cut from.
	Cubes() []string
	// Coordinates returns the coordinates of a cube, by its index in Cubes, and Coordinate reads
	// the file of one.
	Coordinates(ctx context.Context, cube int) ([]pipeline.Coordinate, error)
	Coordinate(ctx context.Context, cube int, dim string) ([]byte, error)
}

// croppedOf returns d as a dataset of crops, nil for others.
func croppedOf(d Dataset) cropped {
	if c, can := d.(cropped); can && c.Crops() {
		return c
	}
	return nil
}
