package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// follower provides the snapshots of a dataset that grows in a directory, as configured by
// Spec.Grow: a live index of the present shards, and a Snapshotter, which starts epochs.
type follower struct {
	mount       *mount
	runDir      string
	live        *catalog.LiveIndex
	snapshotter *snapshot.Snapshotter
}

// Open implements snapshots. It starts following the directory, and waits until the first epoch
// exists or could be started.
func (f *follower) Open(ctx context.Context, c catalog.Config) error {
	g := f.mount.spec.Grow
	window, err := growing.ParseWindow(g.Window)
	if err != nil {
		return fmt.Errorf("--window: %w", err)
	}
	minNew, err := growing.ParseAmount(g.MinNew)
	if err != nil {
		return fmt.Errorf("--min-new: %w", err)
	}
	if err := minNew.Within(window); err != nil {
		return err
	}
	pinned, err := f.findRun(c)
	if err != nil {
		return err
	}
	info, begun, err := snapshot.InfoOf(f.runDir)
	if err != nil {
		return err
	}
	if err := f.suits(info.Run, begun || pinned != nil); err != nil {
		return err
	}
	newest := growing.By(g.Newest)
	if newest == "" && begun {
		newest = growing.By(info.Newest)
	}
	if f.live, err = catalog.OpenLiveIndex(ctx, catalog.LiveIndexConfig{Config: c, Kind: info.Kind, FormatLine: info.Format}); err != nil {
		return err
	}
	if pinned != nil { // the format and kind of the run then follow from its shards
		sealed, err := sealSnapshot(ctx, f.live, f.mount.files, pinned.Text)
		if err == nil {
			err = sealed.Close()
		}
		if err != nil {
			return err
		}
	}
	f.snapshotter, err = snapshot.Open(ctx, snapshot.Config{
		Index: f.live, Storage: f.mount.files, Root: f.mount.root, RunDir: f.runDir,
		Window: window, Newest: newest, MinNew: minNew, Settle: g.Settle, Poll: g.Poll,
		SampleOf: f.mount.spec.Order.Sample.Of, Hold: f.mount.links, Pinned: pinned, Log: f.mount.log,
	})
	if err != nil {
		return err
	}
	return f.wait(ctx)
}

// findRun finds the run directory, and what to pin there (nil for nothing).
func (f *follower) findRun(c catalog.Config) (*snapshot.Pinned, error) {
	g := f.mount.spec.Grow
	indexDir, _, err := catalog.DirectoryFor(c.IndexDir, c.Dataset)
	if err != nil {
		indexDir = "" // a requested run directory is enough
	}
	if f.runDir, err = snapshot.Place(g.Run, c.Dataset, f.mount.root, indexDir); err != nil {
		return nil, err
	}
	if g.Snapshot == "" {
		return nil, nil
	}
	if g.Of == "" {
		return nil, errors.New("--snapshot with --grow continues a run without its directory: name the checkpoint with --resume, or leave --grow out to read only the snapshot's shards")
	}
	_, text, err := run.ReadSnapshot(g.Snapshot)
	if err != nil {
		return nil, err
	}
	return &snapshot.Pinned{Run: g.Of, Epoch: f.mount.spec.Epoch, Text: text}, nil
}

// suits returns an error if the checkpoint is not from the run in the run directory, before any
// epoch is started.
func (f *follower) suits(there string, begun bool) error {
	of := f.mount.spec.Grow.Of
	switch {
	case of == "" || of == there || there == "" && begun:
		return nil
	case there == "":
		return fmt.Errorf("the checkpoint is of run %s, and there is no run in %s: name the run's directory with --run or, if that is not on this machine, the snapshot of the checkpoint's epoch with --snapshot", of, f.runDir)
	}
	return fmt.Errorf("the checkpoint is of run %s, and %s has run %s: name its directory with --run", of, f.runDir, there)
}

// wait waits for the first epoch, unless none may be started.
func (f *follower) wait(ctx context.Context) error {
	latest, any := f.snapshotter.Latest()
	if f.mount.spec.Grow.Of != "" && (!any || f.mount.spec.Epoch > latest) {
		return fmt.Errorf("the checkpoint is of epoch %d, which the run in %s does not have: it may be an old copy: name the run's own directory with --run", f.mount.spec.Epoch, f.runDir)
	}
	if any || f.mount.options.TakesNone {
		return nil
	}
	return f.snapshotter.Wait(ctx, f.mount.options.Waiting)
}

// Latest implements snapshots.
func (f *follower) Latest() (epoch uint64, any bool) {
	if f.snapshotter == nil {
		return 0, false
	}
	return f.snapshotter.Latest()
}

// Catalog implements snapshots.
func (f *follower) Catalog(ctx context.Context, epoch uint64, take bool) (*catalog.Catalog, run.Epoch, error) {
	c, e, err := f.snapshotter.Catalog(ctx, epoch, take && !f.mount.options.TakesNone)
	if f.mount.options.TakesNone && errors.Is(err, growing.ErrNotYet) {
		err = f.looksOnly(err)
	}
	return c, e, err
}

// CanTake implements snapshots.
func (f *follower) CanTake(ctx context.Context, epoch uint64) error {
	return f.snapshotter.CanTake(ctx, epoch)
}

// looksOnly is the error for an epoch that has not started, in a command that starts none.
func (f *follower) looksOnly(err error) error {
	const begins = "this command begins none; lsiofs mount --grow and lsiofs cat --grow do"
	_, any := f.snapshotter.Latest()
	switch {
	case any:
		return fmt.Errorf("%w: this command starts no epoch; lsiofs mount --grow and lsiofs next do", err)
	case f.snapshotter.Run() == "":
		return fmt.Errorf("there is no run in %s yet: name another directory with --run; %s (%w)", f.runDir, begins, err)
	}
	return fmt.Errorf("the run in %s has no epoch yet: %s (%w)", f.runDir, begins, err)
}

// Run implements snapshots.
func (f *follower) Run() string { return f.snapshotter.Run() }

// Growing implements snapshots.
func (f *follower) Growing() snapshot.Status { return f.snapshotter.Status() }

// Close implements snapshots.
func (f *follower) Close() (err error) {
	if f.snapshotter != nil {
		err = f.snapshotter.Close()
	}
	if f.live != nil {
		err = errors.Join(err, f.live.Close())
	}
	return err
}

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
	live, err := catalog.OpenLiveIndex(ctx, catalog.LiveIndexConfig{Config: m.catalogConfig()})
	if err != nil {
		return nil, err
	}
	g.catalog, err = sealSnapshot(ctx, live, m.files, text)
	if err = errors.Join(err, live.Close()); err != nil {
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
func sealSnapshot(ctx context.Context, live *catalog.LiveIndex, files storage.Storage, text []byte) (*catalog.Catalog, error) {
	shards, err := catalog.ShardsOf(text)
	if err != nil {
		return nil, fmt.Errorf("it is not a snapshot: %w", err)
	}
	if err := live.Suits(ctx, text); err != nil {
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
	if err := live.Index(ctx, found); err != nil {
		return nil, err
	}
	return live.Seal(ctx, text)
}
