package taking

import (
	"context"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/run"
)

const (
	// waitLook is how often the run directory is looked at while nothing happens here:
	// another node may take the first epoch.
	waitLook = time.Second
	// tellEvery is how often those who wait are told at most.
	tellEvery = 200 * time.Millisecond
)

// Wait waits for the first epoch: until one is taken by any node, or could be: there is a
// settled shard with records, and so much that is new as there has to be. told, if it is not
// nil, is called now and then while that takes time. It takes no epoch.
func (t *Taker) Wait(ctx context.Context, told func(Status)) error {
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
		if first { // what is here already is enough, perhaps
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
		select { // arrivals come by the thousand
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
