package fs

import (
	"context"
	"errors"
	"strings"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// growingOf returns d as a growing dataset, nil for others.
func growingOf(d Dataset) *pipeline.Dataset {
	if g, can := d.(*pipeline.Dataset); can && g.Grows() {
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
