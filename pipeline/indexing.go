package pipeline

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// IndexPart indexes one of several parts of a dataset's shards, and opens nothing: what it finds is
// there for the Open that comes after the last part (catalog.IndexPart). It is for one dataset, not
// a mixture, which does not grow.
func IndexPart(ctx context.Context, s spec.Spec, o Options, part catalog.PassPart) (n catalog.Indexed, err error) {
	if err := s.Validate(); err != nil {
		return n, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m, err := openMount(ctx, s, o)
	if err != nil {
		return n, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	return catalog.IndexPart(ctx, m.catalogConfig(), part)
}
