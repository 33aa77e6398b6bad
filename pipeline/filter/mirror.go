package filter

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lsiofs/lsiofs/pipeline/filter/ledger"
)

// mirror deletes the results of sources that are gone. A result that is not any more what
// was made is not deleted.
func (r *run) mirror(ctx context.Context) error {
	var gone []string
	paths := r.ledger.Paths()
	for _, path := range paths {
		if r.sources.files[path] == nil {
			gone = append(gone, path)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if len(gone) == len(paths) && len(r.sources.files) == 0 {
		r.warnOnce(fmt.Sprintf("SRC is empty, and DST has %d results: --mirror deletes none of them, in case SRC is not mounted", len(paths)))
		return nil
	}
	var forget []string
	for _, path := range gone {
		removed, err := r.remove(ctx, path)
		if err != nil {
			return fmt.Errorf("delete the result of a source that is gone: %w", err)
		}
		forget = append(forget, path)
		if removed {
			r.Progress.change(func(c *Counts) { c.Removed++ })
		}
	}
	return r.ledger.Remove(forget...)
}

// remove deletes a result, and the directories that are empty then.
func (r *run) remove(ctx context.Context, path string) (bool, error) {
	full := filepath.Join(r.Destination, path)
	p, err := look(full)
	if err != nil || p == absent {
		return false, err
	}
	e, _ := r.ledger.Get(path)
	sum := ledger.Sum{}
	if p == aFile {
		if sum, err = sumOfFile(ctx, full); err != nil {
			return false, err
		}
	}
	if sum != e.Result {
		r.Warn(fmt.Sprintf("%s: its source is gone, and it is not as the filter made it: it stays", full))
		return false, nil
	}
	if err := os.Remove(full); err != nil {
		return false, err
	}
	for dir := filepath.Dir(full); dir != r.Destination && within(dir, r.Destination); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil { // it is not empty
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
