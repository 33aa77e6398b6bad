package snapshot

import (
	"context"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	// batchFiles is how many files are indexed at a time: enough to keep the cores busy with small
	// files, and few enough that new arrivals don't wait for long.
	batchFiles = 2048
	// retryAfter is when indexing is tried again after a failure, such as a full disk or lack of
	// memory.
	retryAfter = 5 * time.Second
)

// index is the goroutine that indexes settled files as they arrive, and waiting ones when they are
// due.
func (t *Snapshotter) index(ctx context.Context) {
	defer t.running.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next, err := t.indexSome(ctx)
		if ctx.Err() != nil {
			return
		}
		wake := t.queue.wake
		switch {
		case err != nil:
			t.config.Log.Error("shards can't be indexed; it is tried again", "after", retryAfter, "error", err)
			wake, next = nil, time.Now().Add(retryAfter)
		case t.queue.left() > 0:
			continue
		}
		var due <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-t.retry:
		case <-due:
		}
	}
}

// beginIndexing waits for the turn to look at files and index them; endIndexing ends it. The error
// is ctx's.
func (t *Snapshotter) beginIndexing(ctx context.Context) error {
	select {
	case t.indexing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *Snapshotter) endIndexing() { <-t.indexing }

// indexSome indexes the next files, and returns the time when more are due.
func (t *Snapshotter) indexSome(ctx context.Context) (next time.Time, err error) {
	if err := t.beginIndexing(ctx); err != nil {
		return time.Time{}, err
	}
	defer t.endIndexing()
	files, place := t.queue.start(batchFiles)
	if len(files) > 0 {
		err = t.config.Index.Index(ctx, files)
	}
	for _, path := range t.queue.end(place, err) {
		t.config.Index.Forget(path) // it may have been indexed after it was gone
	}
	if err != nil {
		return time.Time{}, err
	}
	due, next := t.config.Index.Due(time.Now())
	if len(due) == 0 {
		return next, nil
	}
	// Files that are still damaged are due later; while the queue is not empty, they wait for it.
	return time.Now(), t.indexDue(ctx, due[:min(len(due), batchFiles)])
}

func (t *Snapshotter) indexDue(ctx context.Context, due []storage.Object) error {
	err := t.config.Index.Index(ctx, due)
	for _, o := range due {
		t.queue.unlessSettled(o.Path, func() { t.config.Index.Forget(o.Path) })
	}
	t.queue.again(err)
	return err
}

// indexed waits until all files that are settled now are indexed.
func (t *Snapshotter) indexed(ctx context.Context) error {
	before, _ := t.queue.state()
	if before.failure != nil {
		select {
		case t.retry <- struct{}{}:
		default:
		}
	}
	for {
		now, changed := t.queue.state()
		switch {
		case now.done >= before.told:
			return nil
		case now.failures > before.failures:
			return fmt.Errorf("index what is new: %w", now.failure)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
