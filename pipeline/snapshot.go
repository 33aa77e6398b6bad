package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// openSnapshotFile makes the catalog of exactly the shards listed in a snapshot file.
func (g *generation) openSnapshotFile(ctx context.Context) (shut func() error, err error) {
	m := g.mount
	index := &m.meter.Working[meter.Index]
	index.Begin(meter.Now())
	defer func() { index.End(meter.Now()) }()
	_, text, err := run.ReadSnapshot(m.spec.Grow.Snapshot)
	if err != nil {
		return nil, err
	}
	stock, err := catalog.OpenLiveIndex(ctx, catalog.LiveIndexConfig{Config: m.catalogConfig()})
	if err != nil {
		return nil, err
	}
	g.catalog, err = sealSnapshot(ctx, stock, m.files, text)
	if err = errors.Join(err, stock.Close()); err != nil {
		if g.catalog != nil {
			err = errors.Join(err, g.catalog.Close())
		}
		return nil, fmt.Errorf("%s: %w", m.spec.Grow.Snapshot, err)
	}
	g.spec.Format = g.catalog.Format()
	return g.catalog.Close, nil
}

// sealSnapshot indexes the shards in a snapshot's text that are not indexed yet, and returns their
// catalog.
func sealSnapshot(ctx context.Context, stock *catalog.LiveIndex, files storage.Storage, text []byte) (*catalog.Catalog, error) {
	shards, err := catalog.ShardsOf(text)
	if err != nil {
		return nil, fmt.Errorf("it is not a snapshot: %w", err)
	}
	if err := stock.Suits(ctx, text); err != nil {
		return nil, err
	}
	var found []storage.Object
	for i := range shards {
		if o, err := files.Stat(ctx, shards[i].Path); err == nil {
			found = append(found, o)
		} else if ctx.Err() != nil {
			return nil, ctx.Err()
		} // otherwise Seal reports that it is missing
	}
	if err := stock.Index(ctx, found); err != nil {
		return nil, err
	}
	return stock.Seal(ctx, text)
}
