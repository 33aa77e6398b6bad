package fs

import (
	"context"
	"errors"
	"strings"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// growing is what a dataset that grows has beside Dataset; a *pipeline.Dataset is one where
// Grows says so.
type growing interface {
	Grows() bool
	// Run names its run, as checkpoints do.
	Run() string
	// HasEpoch reports whether an epoch may be asked for, Taken whether it has been. CanTake
	// returns nil if it has been, or could be now. None of them takes an epoch.
	HasEpoch(epoch uint64) bool
	Taken(epoch uint64) bool
	CanTake(ctx context.Context, epoch uint64) error
	// EpochFingerprint takes the epoch if it is the next one.
	EpochFingerprint(ctx context.Context, epoch uint64) (string, error)
	// Begin says that the worker files are of an epoch from now on.
	Begin(ctx context.Context, epoch uint64) error
}

// growingOf is a dataset that grows, nil for others.
func growingOf(d Dataset) growing {
	if g, can := d.(growing); can && g.Grows() {
		return g
	}
	return nil
}

// differ says that epochs are of different records.
func (t *tree) differ() bool { return t.growing != nil || t.sampled() }

// hasEpoch says whether the name epoch-N is there.
func (t *tree) hasEpoch(epoch uint64) bool { return t.growing == nil || t.growing.HasEpoch(epoch) }

// taken reports whether an epoch has begun.
func (t *tree) taken(epoch uint64) bool { return t.growing == nil || t.growing.Taken(epoch) }

// fingerprintOf is that of an epoch. Like all that asks for an epoch it may have to wait for
// its shards to be indexed.
func (t *tree) fingerprintOf(ctx context.Context, epoch uint64) (string, error) {
	if t.growing == nil {
		return t.fingerprint, nil
	}
	return t.growing.EpochFingerprint(ctx, epoch)
}

// judgedBy is what documents are judged by.
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

// rewordedError is an error with other words.
type rewordedError struct {
	error
	text string
}

func (e *rewordedError) Error() string { return e.text }
func (e *rewordedError) Unwrap() error { return e.error }

// reworded is an error in the words for a dataset that grows. One about a shard that has
// changed says to mount again, and here that does not help: the epoch would lack the shard.
func reworded(err error) error {
	if !errors.Is(err, storage.ErrChanged) {
		return err
	}
	return &rewordedError{err, rewordedText(err.Error())}
}

func rewordedText(text string) string {
	return strings.ReplaceAll(text, storage.ErrChanged.Error(), "changed since it was indexed: go on with the next epoch (lsiofs next)")
}
