package taking

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/storage/held"
)

// heldSnapshots is what was done with the links of this run. Taker.holding guards it.
type heldSnapshots struct {
	done map[string]bool // snapshots whose shards this process holds
	kept []string        // snapshots that the directory had when links were removed last
}

// linesOf gives the lines of a snapshot's text that are shards.
func linesOf(text []byte) (lines []held.Line) {
	_, rest, _ := strings.Cut(string(text), "\n")
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
			lines = append(lines, held.Line{Path: fields[3], Text: line})
		}
	}
	return lines
}

// hold makes the links of a snapshot, if links are wanted. t.holding is held.
func (t *Taker) hold(ctx context.Context, d *run.Directory, text []byte) error {
	l := t.config.Hold
	if l == nil {
		return nil
	}
	if err := l.Use(d.Info().Run); err != nil {
		return err
	}
	return l.Hold(ctx, linesOf(text))
}

// notHeld gives a shard of a snapshot that has no link although links are wanted: it was
// deleted before it got one. t.holding is held.
func (t *Taker) notHeld(text []byte) (path string, any bool) {
	if t.config.Hold == nil {
		return "", false
	}
	for _, line := range linesOf(text) {
		if !t.config.Hold.Has(line) {
			return line.Path, true
		}
	}
	return "", false
}

// holdTaken makes the links of an epoch that is taken, once, and removes those of snapshots
// that are kept no longer.
func (t *Taker) holdTaken(ctx context.Context, d *run.Directory, e *run.Epoch, text []byte) error {
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
		t.config.Log.Warn("links to shards that no snapshot has any more could not be removed", "error", err)
	}
	return ctx.Err()
}

// dropLinks removes the links that no kept snapshot has, if one of these has gone since the
// last time. t.holding is held.
func (t *Taker) dropLinks(ctx context.Context, d *run.Directory) error {
	kept, err := d.Kept()
	if err != nil {
		return err
	}
	if t.held.kept != nil && !slices.ContainsFunc(t.held.kept, func(s string) bool { return !slices.Contains(kept, s) }) {
		return nil
	}
	wanted := held.Kept{}
	for _, s := range kept {
		text, err := d.Snapshot(s)
		if errors.Is(err, run.ErrGone) {
			continue
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err // without it nobody knows what is wanted
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
