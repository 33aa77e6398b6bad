package filter

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// mirror deletes the results of sources that are gone. If SRC is empty, it deletes nothing and
// returns false. A result that was changed after it was made is not deleted.
func (r *run) mirror(ctx context.Context, gone []string, empty bool) (bool, error) {
	var forget []string
	for _, path := range gone {
		if _, known := r.ledger.Get(path); known {
			forget = append(forget, path)
		}
	}
	if len(forget) == 0 {
		return true, nil
	}
	if empty {
		r.warnOnce(fmt.Sprintf("SRC is empty, and DST has %d results: --mirror deletes none of them, in case SRC is not mounted", len(r.ledger.Paths())))
		return false, nil
	}
	for _, path := range forget {
		removed, err := r.remove(ctx, path)
		if err != nil {
			return false, fmt.Errorf("delete the result of a source that is gone: %w", err)
		}
		if removed {
			r.Progress.change(func(c *Counts) { c.Removed++ })
		}
	}
	return true, r.ledger.Remove(forget...)
}

// remove deletes a result, and directories that become empty.
func (r *run) remove(ctx context.Context, path string) (bool, error) {
	full := filepath.Join(r.Destination, path)
	p, err := look(full)
	if err != nil || p == absent {
		return false, err
	}
	made := false
	if p == aFile {
		sum, err := sumOfFile(ctx, full)
		if err != nil {
			return false, err
		}
		made = r.ledger.Made(path, sum)
	}
	if !made {
		r.Warn(fmt.Sprintf("%s: its source is gone, and it was changed after the filter made it: it stays", full))
		return false, nil
	}
	if err := os.Remove(full); err != nil {
		return false, err
	}
	for dir := filepath.Dir(full); dir != r.Destination && within(dir, r.Destination); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil { // not empty
			return true, nil
		}
	}
	return true, nil
}

// warnOnce warns, unless that was the last warning about SRC.
func (r *run) warnOnce(text string) {
	if text != r.told {
		r.Warn(text)
		r.told = text
	}
}
