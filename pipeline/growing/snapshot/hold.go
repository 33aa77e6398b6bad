package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/storage/hardlink"
)

// heldSnapshots is the state of this run's links. Snapshotter.holding guards it.
type heldSnapshots struct {
	done map[string]bool // snapshots whose shards this process has linked
	kept []string        // snapshots in the run directory when links were last removed
}

// linesOf returns the lines of a snapshot's text that describe shards.
func linesOf(text []byte) (lines []hardlink.Line) {
	_, rest, _ := strings.Cut(string(text), "\n")
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
			lines = append(lines, hardlink.Line{Path: fields[3], Text: line})
		}
	}
	return lines
}

// hold makes the links of a snapshot, if links are wanted. It is called with t.holding held.
func (t *Snapshotter) hold(ctx context.Context, d *run.Directory, text []byte) error {
	l := t.config.Hold
	if l == nil {
		return nil
	}
	if err := l.Use(d.Info().Run); err != nil {
		return err
	}
	return l.Hold(ctx, linesOf(text))
}

// notHeld returns a shard of a snapshot whose link is not to the file that was chosen, if links are
// wanted: the shard was deleted, or rewritten, before it was linked. Shards of the previous epoch
// were linked then. It is called with t.holding held.
func (t *Snapshotter) notHeld(ctx context.Context, epoch uint64, text []byte, chosen []catalog.LiveShard) (path string, any bool, err error) {
	if t.config.Hold == nil {
		return "", false, nil
	}
	before, err := t.textBefore(epoch)
	if err != nil {
		return "", false, err
	}
	lines := linesOf(text)
	for _, line := range lines {
		if !t.config.Hold.Has(line) {
			return line.Path, true, nil
		}
	}
	fresh := freshPaths(linesOf(before), lines)
	for i := range chosen {
		x := &chosen[i]
		if !fresh[x.Path] {
			continue
		}
		o, err := t.config.Storage.Stat(ctx, x.Path) // if the file is gone, its link
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && o.Version.ModTimeNanos != x.ModTimeNanos:
			return x.Path, true, nil
		case err != nil:
			return "", false, fmt.Errorf("checking whether shards are held: %w", err)
		}
	}
	return "", false, nil
}

// freshPaths returns the paths of lines that another snapshot does not have. Both are ordered by
// path.
func freshPaths(before, now []hardlink.Line) map[string]bool {
	fresh := map[string]bool{}
	for _, line := range now {
		for len(before) > 0 && before[0].Path < line.Path {
			before = before[1:]
		}
		if len(before) == 0 || before[0].Text != line.Text {
			fresh[line.Path] = true
		}
	}
	return fresh
}

// holdTaken makes the links of an epoch that has been started, once, and removes those of snapshots
// that are no longer stored.
func (t *Snapshotter) holdTaken(ctx context.Context, d *run.Directory, e *run.Epoch, text []byte) error {
	if t.config.Hold == nil {
		return nil
	}
	t.holding.Lock()
	defer t.holding.Unlock()
	if !t.held.done[e.Snapshot] {
		if err := t.hold(ctx, d, text); err != nil {
			return err
		}
		if t.held.done == nil {
			t.held.done = map[string]bool{}
		}
		t.held.done[e.Snapshot] = true
	}
	if err := t.dropLinks(ctx, d); err != nil && ctx.Err() == nil {
		t.config.Log.Warn("links to shards that are in no snapshot any more could not be removed", "error", err)
	}
	return ctx.Err()
}

// dropLinks removes the links that no stored snapshot has, if a snapshot has been removed since the
// last call. It is called with t.holding held.
func (t *Snapshotter) dropLinks(ctx context.Context, d *run.Directory) error {
	kept, err := d.Kept()
	if err != nil {
		return err
	}
	if t.held.kept != nil && !slices.ContainsFunc(t.held.kept, func(s string) bool { return !slices.Contains(kept, s) }) {
		return nil
	}
	wanted := hardlink.Kept{}
	for _, s := range kept {
		text, err := d.Snapshot(s)
		if errors.Is(err, run.ErrGone) {
			continue
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err // without it, it is unknown which links are needed
		}
		for _, l := range linesOf(text) {
			wanted.Add(l.Text)
		}
	}
	if _, err := t.config.Hold.Keep(wanted); err != nil {
		return err
	}
	for s := range t.held.done {
		if !slices.Contains(kept, s) {
			delete(t.held.done, s)
		}
	}
	t.held.kept = kept
	return nil
}
