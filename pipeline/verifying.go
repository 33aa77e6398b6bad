package pipeline

import (
	"context"
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/verify"
)

// verifyShards is Dataset.VerifyShards. If there is a way around the page cache it uses that,
// through a storage of its own; otherwise it reads as readers do.
func (g *generation) verifyShards(ctx context.Context, progress func(catalog.Progress)) (verify.Report, error) {
	m := g.mount
	caps := m.files.Caps()
	c := verify.Config{Catalog: g.catalog, Storage: m.reads, Auditor: caps.Verifier, Profile: m.profile, MemoryBytes: g.spec.MemoryBytes, Progress: progress}
	if caps.Uncached == nil {
		return verify.Shards(ctx, c)
	}
	s, err := caps.Uncached()
	if err != nil {
		return verify.Report{}, err
	}
	if s == nil {
		return verify.Shards(ctx, c)
	}
	c.Storage, _ = m.scheme.over(s)
	r, err := verify.Shards(ctx, c)
	return r, errors.Join(err, c.Storage.Close())
}
