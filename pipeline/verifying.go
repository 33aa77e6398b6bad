package pipeline

import (
	"context"
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/joined"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
	"github.com/lsiofs/lsiofs/pipeline/unpack/files"
	"github.com/lsiofs/lsiofs/pipeline/verify"
)

// VerifyShards reads every byte of the dataset's shards from their storage, past
// the page cache where that is possible and not switched off, and says what is
// wrong. A read that fails for a reason that passes is made again first, as for
// readers. Errors are of ctx.
func (d *Dataset) VerifyShards(ctx context.Context, progress func(catalog.Progress)) (verify.Report, error) {
	c := verify.Config{Catalog: d.catalog, Storage: d.storage, Profile: d.profile, Progress: progress}
	if d.spec.Format.Name == files.Name { // they are read through the page cache, whatever is wanted
		return verify.Shards(ctx, c)
	}
	direct := local.DirectOn
	if d.spec.Direct == spec.DirectOff {
		direct = local.DirectOff
	}
	s, err := local.OpenDirect(d.catalog.Root(), d.engine, direct)
	if err != nil {
		return verify.Report{}, err
	}
	var below storage.Storage = s
	if j, is := d.files.(*joined.Storage); is {
		below = j.On(s)
	}
	again := retry.New(below)
	c.Storage = again
	r, err := verify.Shards(ctx, c)
	return r, errors.Join(err, again.Close())
}
