package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/identity"
)

// Catalog returns the catalog of an epoch's snapshot, and the record of the epoch. Each call
// returns a new catalog, which the caller closes; it stays usable after the snapshotter's Close.
//
// An epoch that any node has started has the shards recorded then. Those that this node has not
// indexed yet are indexed now. The epoch after the latest is started if take is set. Errors are
//
//	growing.ErrNotYet      it is the next one, and too little is new, or take is false
//	growing.ErrNoEpoch     it is after that, or from before the run was pinned
//	run.ErrGone            its snapshot is no longer stored
//	*catalog.LackingError  some of its shards are missing here: another call looks again
//	*catalog.DiffersError  one of its shards is different here
//
// If ctx ends, starting continues in the background, for the next call.
func (t *Snapshotter) Catalog(ctx context.Context, epoch uint64, take bool) (*catalog.Catalog, run.Epoch, error) {
	latest, err := t.find()
	if err != nil {
		return nil, run.Epoch{}, err
	}
	if epoch == latest+1 { // run.None + 1 is 0
		if !take {
			return nil, run.Epoch{}, &growing.NotYetError{Epoch: epoch}
		}
		refused := t.start(ctx, epoch)
		if refused != nil && !errors.Is(refused, growing.ErrNotYet) {
			return nil, run.Epoch{}, refused
		}
		if latest, err = t.find(); err != nil {
			return nil, run.Epoch{}, err
		}
		if refused != nil && (latest == run.None || latest < epoch) { // and no other node has started it
			return nil, run.Epoch{}, refused
		}
	}
	if latest == run.None || epoch > latest {
		return nil, run.Epoch{}, &growing.NoEpochError{Epoch: epoch, At: at(latest)}
	}
	return t.taken(ctx, epoch)
}

// CanTake returns nil if an epoch has been started, by any node, or could be started now. Like
// starting, it looks at the directory and waits for indexing; but it starts nothing. Errors:
// growing.ErrNotYet, growing.ErrNoEpoch.
func (t *Snapshotter) CanTake(ctx context.Context, epoch uint64) error {
	latest, err := t.find()
	switch {
	case err != nil:
		return err
	case latest != run.None && epoch <= latest:
		return nil
	case epoch != latest+1: // run.None + 1 is 0
		return &growing.NoEpochError{Epoch: epoch, At: at(latest)}
	}
	return t.look(ctx, epoch)
}

// at describes which epoch a run is at.
func at(latest uint64) string {
	if latest == run.None {
		return "this run has no epoch yet"
	}
	return fmt.Sprintf("this run is at %d; the next one is %d", latest, latest+1)
}

// taken returns the catalog of an epoch that has been started.
func (t *Snapshotter) taken(ctx context.Context, epoch uint64) (*catalog.Catalog, run.Epoch, error) {
	d, err := t.directory()
	if err != nil {
		return nil, run.Epoch{}, err
	}
	e, err := d.Epoch(epoch)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, run.Epoch{}, &growing.NoEpochError{Epoch: epoch, At: fmt.Sprintf("%s does not have it", d.Path())}
	}
	if err != nil {
		return nil, run.Epoch{}, err
	}
	t.warnOfWindow(&e)
	text, err := t.snapshot(d, e.Snapshot)
	if err != nil {
		return nil, e, fmt.Errorf("epoch %d: %w", epoch, err)
	}
	err = t.holdTaken(ctx, d, &e, text)
	if err != nil {
		return nil, e, err
	}
	c, err := t.seal(ctx, text)
	if err != nil {
		return nil, e, fmt.Errorf("epoch %d (taken by %s, host/process): %w", epoch, e.By, err)
	}
	return c, e, nil
}

// seal returns the catalog of a snapshot. If shards are not indexed here, or have changed, it looks
// at the files, once each.
func (t *Snapshotter) seal(ctx context.Context, text []byte) (*catalog.Catalog, error) {
	looked := map[string]bool{}
	defer func() {
		for path := range looked { // it only counts once the watcher reports it, too
			t.queue.unlessSettled(path, func() { t.config.Index.Forget(path) })
		}
	}()
	for {
		c, err := t.config.Index.Seal(ctx, text)
		if err == nil {
			return c, nil
		}
		var paths []string
		if lacking, ok := errors.AsType[*catalog.LackingError](err); ok {
			paths = lacking.Paths
		} else if differs, ok := errors.AsType[*catalog.DiffersError](err); ok {
			paths = []string{differs.Path}
		}
		any, failed := t.indexPaths(ctx, paths, looked)
		if failed != nil {
			return nil, failed
		}
		if !any {
			return nil, err
		}
	}
}

// indexPaths indexes files that have not been looked at yet, and reports whether any differed from
// what the live index knows. A file that the watcher has not reported as settled does not count for the
// next epoch yet.
func (t *Snapshotter) indexPaths(ctx context.Context, paths []string, looked map[string]bool) (any bool, err error) {
	for batch := range slices.Chunk(paths, batchFiles) {
		some, err := t.indexBatch(ctx, batch, looked)
		any = any || some
		if err != nil {
			return any, err
		}
	}
	return any, nil
}

// indexBatch is indexPaths for a few files. It holds the indexing turn from the look at a file
// until it is indexed, so that no later state of the file is indexed meanwhile: the last one to be
// indexed wins.
func (t *Snapshotter) indexBatch(ctx context.Context, paths []string, looked map[string]bool) (any bool, err error) {
	if err := t.beginIndexing(ctx); err != nil {
		return false, err
	}
	defer t.endIndexing()
	var files []storage.Object
	for _, path := range paths {
		if looked[path] {
			continue
		}
		looked[path] = true
		o, err := t.stat(ctx, path)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil: // it is not here yet, or no longer; the caller returns that error
			continue
		}
		if written, _ := identity.Written(filepath.Join(t.config.Root, path)); written {
			continue
		}
		files = append(files, o)
	}
	if len(files) == 0 {
		return false, nil
	}
	return true, t.config.Index.Index(ctx, files)
}

// stat returns the description of a file for indexing.
func (t *Snapshotter) stat(ctx context.Context, path string) (storage.Object, error) {
	return storage.StatStable(ctx, t.config.Storage, path)
}
