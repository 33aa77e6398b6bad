package fs

import (
	"context"
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// fileSet is what nodes need of a *stream.Set.
type fileSet interface {
	// Remaining is the number of remaining records, before the tail rule.
	Remaining() uint64
	SizeBytes(ctx context.Context, w uint64, k stream.Kind) (int64, error)
	WholeRecords(ctx context.Context, w uint64, k stream.Kind, mark int64) (uint64, error)
	Open(ctx context.Context, w uint64, k stream.Kind) (fileHandle, error)
}

// fileHandle is what handles need of a *stream.Handle.
type fileHandle interface {
	ReadAt(ctx context.Context, r *stream.Reply, off int64, n int) error
	// BeforeRecords is the offset of the first record.
	BeforeRecords() int64
	Close()
}

// openSet returns the files for the rest of epoch after done.
type openSet func(ctx context.Context, epoch uint64, done []order.Done, deal spec.Assignment) (fileSet, error)

// datasetSets returns the sets of a dataset.
func datasetSets(d Dataset) openSet {
	return func(ctx context.Context, epoch uint64, done []order.Done, deal spec.Assignment) (fileSet, error) {
		s, err := d.Set(ctx, epoch, done, deal)
		if err != nil {
			return nil, err
		}
		again := func(ctx context.Context) (*stream.Set, error) { return d.Set(ctx, epoch, done, deal) }
		return streamSet{s, again}, nil
	}
}

// streamSet is a set of a dataset. If its shards were closed meanwhile, because they were unused,
// it asks for the set again.
type streamSet struct {
	*stream.Set
	again func(context.Context) (*stream.Set, error)
}

func (s streamSet) Remaining() uint64 { return s.View().Remaining() }

func (s streamSet) SizeBytes(ctx context.Context, w uint64, k stream.Kind) (n int64, err error) {
	err = s.retry(ctx, func(x *stream.Set) (err error) { n, err = x.SizeBytes(ctx, w, k); return err })
	return n, err
}

func (s streamSet) WholeRecords(ctx context.Context, w uint64, k stream.Kind, mark int64) (n uint64, err error) {
	err = s.retry(ctx, func(x *stream.Set) (err error) { n, err = x.WholeRecords(ctx, w, k, mark); return err })
	return n, err
}

func (s streamSet) retry(ctx context.Context, ask func(*stream.Set) error) error {
	x := s.Set
	for {
		err := ask(x)
		if !errors.Is(err, stream.ErrRetired) {
			return err
		}
		if x, err = s.again(ctx); err != nil {
			return err
		}
	}
}

func (s streamSet) Open(ctx context.Context, w uint64, k stream.Kind) (fileHandle, error) {
	x := s.Set
	for {
		h := x.Open(w, k)
		if !h.Retired() {
			return h, nil
		}
		h.Close()
		var err error
		if x, err = s.again(ctx); err != nil {
			return nil, err
		}
	}
}

var (
	_ fileSet    = streamSet{}
	_ fileHandle = (*stream.Handle)(nil)
)
