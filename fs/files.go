package fs

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// fileSet is what nodes need of a *stream.Set.
type fileSet interface {
	// Remaining is the number of records that are left, before the tail rule.
	Remaining() uint64
	SizeBytes(ctx context.Context, w uint64, k stream.Kind) (int64, error)
	WholeRecords(ctx context.Context, w uint64, k stream.Kind, mark int64) (uint64, error)
	Open(w uint64, k stream.Kind) fileHandle
}

// fileHandle is what handles need of a *stream.Handle.
type fileHandle interface {
	ReadAt(ctx context.Context, r *stream.Reply, off int64, n int) error
	Close()
}

// openSet gives the files of what is left of epoch after done.
type openSet func(ctx context.Context, epoch uint64, done []order.Done, deal spec.Deal) (fileSet, error)

// datasetSets gives a dataset's sets.
func datasetSets(d Dataset) openSet {
	return func(ctx context.Context, epoch uint64, done []order.Done, deal spec.Deal) (fileSet, error) {
		s, err := d.Set(ctx, epoch, done, deal)
		if err != nil {
			return nil, err
		}
		return streamSet{s}, nil
	}
}

type streamSet struct{ *stream.Set }

func (s streamSet) Remaining() uint64 { return s.View().Remaining() }

func (s streamSet) Open(w uint64, k stream.Kind) fileHandle { return s.Set.Open(w, k) }

var (
	_ fileSet    = streamSet{}
	_ fileHandle = (*stream.Handle)(nil)
)
