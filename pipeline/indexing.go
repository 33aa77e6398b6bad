package pipeline

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// IndexPart indexes one of several parts of a dataset's shards without opening the dataset. The
// Open that follows the last part finds the results (catalog.IndexPart). It is for a single dataset
// that does not grow, not for mixtures.
func IndexPart(ctx context.Context, s spec.Spec, o Options, part catalog.PassPart) (n catalog.Indexed, err error) {
	if err := formats.Validate(s); err != nil {
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
