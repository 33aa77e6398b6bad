package pipeline

import (
	"context"
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/verify"
)

// VerifyShards reads every byte of the dataset's shards from their storage, past
// the page cache where that is possible and not switched off, and says what is
// wrong. Errors are of ctx.
func (d *Dataset) VerifyShards(ctx context.Context, progress func(catalog.Progress)) (verify.Report, error) {
	direct := local.DirectOn
	if d.spec.Direct == spec.DirectOff {
		direct = local.DirectOff
	}
	s, err := local.OpenDirect(d.catalog.Root(), d.engine, direct)
	if err != nil {
		return verify.Report{}, err
	}
	r, err := verify.Shards(ctx, verify.Config{Catalog: d.catalog, Storage: s, Profile: d.profile, Progress: progress})
	return r, errors.Join(err, s.Close())
}
