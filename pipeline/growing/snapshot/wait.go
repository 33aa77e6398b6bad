package snapshot

import (
	"context"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/run"
)

const (
	// waitLook is how often the run directory is checked while nothing happens here: another node
	// may start the first epoch.
	waitLook = time.Second
	// tellEvery is the minimum time between two calls of told.
	tellEvery = 200 * time.Millisecond
)

// Wait waits until the first epoch has been started by any node, or could be: there is a settled
// shard with records, and as much new data as required. told, if not nil, is called repeatedly
// while that takes time. Wait starts no epoch.
func (t *Snapshotter) Wait(ctx context.Context, told func(Status)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; first = false {
		latest, err := t.find()
		if err != nil {
			return err
		}
		if latest != run.None {
			return nil
		}
		if first { // the files that are here already may suffice
			if err := t.indexed(ctx); err != nil {
				return err
			}
		}
		_, changed := t.queue.state()
		n := t.newsNow(run.None)
		if n.err != nil {
			return n.err
		}
		if n.short == nil {
			return nil
		}
		if told != nil {
			told(t.Status())
		}
		timer.Reset(tellEvery)
		select { // files may arrive by the thousand
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		timer.Reset(waitLook)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.ctx.Done():
			return errClosed
		}
	}
}
