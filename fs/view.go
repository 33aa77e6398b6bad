package fs

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// view is the state of the worker files between two restores: a position, its streams, and how far
// each has been delivered. It is safe for concurrent use.
type view struct {
	number   uint64 // 1, 2, …, counting restores
	position checkpoint.Position
	files    fileSet
	workers  uint64
	deal     spec.Assignment
	began    time.Time
	// firstIno is the first of this view's 4·workers+1 inode numbers; there is one more if epochs
	// differ, and two more if the dataset grows.
	firstIno uint64
	// documentBytes is the size of the document, the same for all marks.
	documentBytes int64
	// records is T of its epoch, fingerprint that of its snapshot. description is its own if epochs
	// differ, and readme if the dataset grows.
	records     uint64
	fingerprint string
	described   uint64 // inode number of dataset.json
	readmeIno   uint64
	readme      []byte
	description description
	// retired is closed by the restore that replaces the view.
	retired chan struct{}

	marks []workerMark
	// moved is when a mark last moved, in Unix nanoseconds; movedClock is the same by meter.Now,
	// which clock adjustments don't affect, and 0 until a mark moves.
	moved, movedClock atomic.Int64
}

// newView opens the streams of a position; number and inodes come from t.
func (t *tree) newView(ctx context.Context, p checkpoint.Position) (*view, error) {
	v := &view{position: p, deal: t.spec.Deal, workers: t.spec.Deal.Workers, retired: make(chan struct{})}
	if len(p.Done) >= checkpoint.MaxEntries {
		return nil, fmt.Errorf("%w: with an entry for this mount it has more than %d entries; continue with the short form {\"epoch\": …, \"samples\": …}",
			checkpoint.ErrTooLarge, checkpoint.MaxEntries)
	}
	var err error
	if v.files, err = t.open(ctx, p.Epoch, p.Done, v.deal); err != nil {
		return nil, err
	}
	if v.fingerprint, err = t.fingerprintOf(ctx, p.Epoch); err != nil {
		return nil, err
	}
	v.records = v.files.Remaining()
	for _, d := range p.Done {
		v.records += d.Taken()
	}
	doc := t.document(v, make([]uint64, v.workers))
	if len(doc) > checkpoint.MaxBytes {
		return nil, fmt.Errorf("%w: with an entry for this mount's %d workers it has %d bytes, of at most %d",
			checkpoint.ErrTooLarge, v.workers, len(doc), checkpoint.MaxBytes)
	}
	v.documentBytes = int64(len(doc))
	v.marks = make([]workerMark, v.workers)
	v.began = time.Now()
	v.moved.Store(v.began.UnixNano())
	v.number = t.views.Add(1)
	t.number(v)
	if t.growing != nil {
		v.readme = t.renderREADME(p.Epoch, v.records)
		if err := t.growing.Begin(ctx, p.Epoch); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// number assigns a view its inode numbers.
func (t *tree) number(v *view) {
	inodes := uint64(len(cropKinds))*v.workers + 1
	more := inodes
	if t.differ() {
		inodes++
	}
	if t.growing != nil {
		inodes++
	}
	v.firstIno = t.nextIno.Add(inodes) - inodes
	v.described, v.readmeIno = inoDataset, inoREADME
	if t.differ() {
		v.described = v.firstIno + more
	}
	if t.growing != nil {
		v.readmeIno = v.firstIno + more + 1
	}
}

// descriptionIno is the inode number of dataset.json.
func (v *view) descriptionIno() uint64 { return v.described }

// ino is the inode number of a worker's file.
func (v *view) ino(w uint64, k stream.Kind) uint64 {
	return v.firstIno + 1 + w*uint64(len(cropKinds)) + uint64(k)
}

// controlIno is the inode number of the control file.
func (v *view) controlIno() uint64 { return v.firstIno }

func (v *view) isRetired() bool {
	select {
	case <-v.retired:
		return true
	default:
		return false
	}
}

// document renders the checkpoint of v with these numbers in its last entry.
func (t *tree) document(v *view, consumed []uint64) []byte {
	return t.documentOf(v.position, v.fingerprint, v.records, consumed)
}

// documentOf renders the checkpoint of a position in an epoch with this many records, of which each
// worker has consumed the given number since.
func (t *tree) documentOf(p checkpoint.Position, fingerprint string, records uint64, consumed []uint64) []byte {
	s := t.subject
	s.Dataset, s.Records = fingerprint, records
	return checkpoint.Live(s, p, t.spec.Deal, consumed).Marshal(records)
}

// snapshot returns the document of v as it is now.
func (t *tree) snapshot(ctx context.Context, v *view) ([]byte, error) {
	counts, err := v.delivered(ctx)
	if err != nil {
		return nil, err
	}
	return t.document(v, counts), nil
}
