package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// attempt is one attempt to start an epoch, or a check of whether it could be started. Concurrent
// callers wait for the same attempt.
type attempt struct {
	epoch uint64
	takes bool
	done  chan struct{}
	err   error
}

// judged records whether an epoch could be started at some version of the index.
type judged struct {
	version uint64 // of the queue
	epoch   uint64
	short   *growing.NotYetError // nil if there is enough
}

// start starts an epoch, or waits for an attempt that does. It continues after ctx ends.
func (t *Snapshotter) start(ctx context.Context, epoch uint64) error {
	return t.try(ctx, attempt{epoch: epoch, takes: true})
}

// look makes the same checks as take, but starts nothing.
func (t *Snapshotter) look(ctx context.Context, epoch uint64) error {
	return t.try(ctx, attempt{epoch: epoch})
}

func (t *Snapshotter) try(ctx context.Context, want attempt) error {
	for {
		a, mine, err := t.attemptAt(want)
		if err != nil {
			return err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if mine || a.epoch == want.epoch && (a.takes || !want.takes) {
			return a.err
		}
	}
}

// attemptAt returns the current attempt, or begins the wanted one.
func (t *Snapshotter) attemptAt(want attempt) (a *attempt, mine bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, false, errClosed
	}
	if t.attempt != nil {
		return t.attempt, false, nil
	}
	a = &attempt{epoch: want.epoch, takes: want.takes, done: make(chan struct{})}
	t.attempt = a
	t.running.Add(1)
	go func() {
		defer t.running.Done()
		a.err = t.takeNow(t.ctx, a)
		t.mu.Lock()
		t.attempt = nil
		t.mu.Unlock()
		close(a.done)
	}()
	return a, true, nil
}

// mostTries is how often shards are chosen again because some vanished before they were linked.
const mostTries = 3

// takeNow checks the current files, and if enough is new and a.takes is set, starts the epoch.
func (t *Snapshotter) takeNow(ctx context.Context, a *attempt) error {
	for try := 1; ; try++ {
		err := t.takeOnce(ctx, a)
		gone, ok := errors.AsType[*goneError](err)
		if !ok {
			return err
		}
		if try == mostTries {
			return fmt.Errorf("epoch %d could not be started: %w", a.epoch, err)
		}
		t.config.Log.Info("choosing shards again: one was deleted or replaced meanwhile", "epoch", a.epoch, "shard", gone.path)
	}
}

func (t *Snapshotter) takeOnce(ctx context.Context, a *attempt) error {
	epoch := a.epoch
	if err := t.watcher.Scan(ctx); err != nil {
		return t.ended(err)
	}
	if err := t.indexed(ctx); err != nil {
		return t.ended(err)
	}
	state, _ := t.queue.state()
	t.mu.Lock()
	j := t.judged
	t.mu.Unlock()
	if j != nil && j.version == state.version && j.epoch == epoch {
		if j.short != nil {
			return j.short
		}
		if !a.takes {
			return nil
		}
	}
	chosen := t.choose()
	text, n, err := t.compare(epoch, chosen)
	if err != nil {
		return err
	}
	short := t.enough(epoch, chosen, n)
	t.mu.Lock()
	t.judged = &judged{state.version, epoch, short}
	t.mu.Unlock()
	if short != nil {
		return short
	}
	if !a.takes {
		return nil
	}
	return t.publish(epoch, chosen, text, n, state.version)
}

// ended returns errClosed if the snapshotter is closed, otherwise err.
func (t *Snapshotter) ended(err error) error {
	if t.ctx.Err() != nil {
		return errClosed
	}
	return err
}

// choose returns the current shards of the window, newest first. Files that were indexed only
// because a snapshot has them, and are not settled, don't count.
func (t *Snapshotter) choose() []catalog.LiveShard {
	shards := t.queue.onlySettled(t.config.Index.Shards())
	growing.Newest(shards, t.config.Newest)
	now := time.Now()
	t.lookAtClocks(shards, now)
	return t.config.Window.Choose(shards, now)
}

// compare returns the text of the snapshot of the chosen shards, nil if there are none, and what it
// has in addition to the previous epoch.
func (t *Snapshotter) compare(epoch uint64, chosen []catalog.LiveShard) (text []byte, n catalog.News, err error) {
	before, err := t.textBefore(epoch)
	if err != nil || len(chosen) == 0 { // the format may be unknown yet, so there is no text
		return nil, catalog.News{}, err
	}
	if text, err = t.config.Index.Text(chosen); err != nil {
		return nil, catalog.News{}, err
	}
	if n, err = catalog.NewsOf(before, text); err != nil {
		return nil, catalog.News{}, fmt.Errorf("comparing epoch %d with the one before: %w", epoch, err)
	}
	return text, n, nil
}

// textBefore returns the text of the previous epoch's snapshot. It returns nil if there is no
// previous epoch, or if its snapshot is no longer stored: then everything counts as new.
func (t *Snapshotter) textBefore(epoch uint64) ([]byte, error) {
	if epoch == 0 {
		return nil, nil
	}
	d, err := t.directory()
	if err != nil {
		return nil, err
	}
	e, err := d.Epoch(epoch - 1)
	if err != nil {
		return nil, err
	}
	text, err := t.snapshot(d, e.Snapshot)
	if errors.Is(err, run.ErrGone) {
		t.config.Log.Warn("all shards count as new", "epoch", epoch, "why", err)
		return nil, nil
	}
	return text, err
}

// snapshot returns the text of a stored snapshot, from memory if it is the one used last.
func (t *Snapshotter) snapshot(d *run.Directory, fingerprint string) ([]byte, error) {
	t.mu.Lock()
	text, name := t.text, t.textName
	t.mu.Unlock()
	if name == fingerprint && d.Keeps(fingerprint) {
		return text, nil
	}
	text, err := d.Snapshot(fingerprint)
	if err != nil {
		return nil, err
	}
	t.remember(fingerprint, text)
	return text, nil
}

func (t *Snapshotter) remember(fingerprint string, text []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text, t.textName = text, fingerprint
}

// enough returns why the epoch can't start yet, or nil.
func (t *Snapshotter) enough(epoch uint64, chosen []catalog.LiveShard, n catalog.News) *growing.NotYetError {
	empty := true
	for i := range chosen {
		if chosen[i].Records > 0 {
			empty = false
			break
		}
	}
	if a := t.config.MinNew; empty || !a.Enough(n) {
		return &growing.NotYetError{Epoch: epoch, Have: a.Has(n), Needed: a, Empty: empty}
	}
	return nil
}

// goneError means that a shard was deleted or rewritten after it was chosen and before it was
// linked: an epoch with it could not be read.
type goneError struct{ path string }

func (e *goneError) Error() string {
	return fmt.Sprintf("%s was deleted or replaced before --hold could keep it: ask for the epoch again, and do not change shards that are so new", e.path)
}

// publish starts the epoch with these shards, whose text is given, unless another node does so
// first. version is that of the queue from which they were chosen.
func (t *Snapshotter) publish(epoch uint64, chosen []catalog.LiveShard, text []byte, n catalog.News, version uint64) error {
	d, err := t.begin()
	if err != nil {
		return err
	}
	t.holding.Lock()
	defer t.holding.Unlock()
	if err := t.hold(t.ctx, d, text); err != nil {
		return err
	}
	gone, any, err := t.notHeld(t.ctx, epoch, text, chosen)
	if err != nil {
		return t.ended(err)
	}
	if any {
		return &goneError{gone}
	}
	there, err := d.Take(epochOf(epoch, chosen, n, t.config.Window), text)
	if errors.Is(err, run.ErrBehind) {
		return nil // the caller looks again
	}
	if fingerprint := run.Fingerprint(text); err == nil && there.Snapshot == fingerprint {
		t.remember(fingerprint, text)
		t.nothingNew(epoch, chosen, version)
	}
	return err
}

// nothingNew records for Status that all current shards are in an epoch, so that this need not be
// computed again.
func (t *Snapshotter) nothingNew(epoch uint64, chosen []catalog.LiveShard, version uint64) {
	n := news{version: version, latest: epoch, at: time.Now(), newest: chosen[0].Path}
	n.short = t.enough(epoch+1, chosen, n.news)
	t.mu.Lock()
	defer t.mu.Unlock()
	n.took = t.news.took
	t.news = n
}

// epochOf returns the record of an epoch.
func epochOf(number uint64, shards []catalog.LiveShard, n catalog.News, w growing.Window) run.Epoch {
	e := run.Epoch{
		Epoch: number, Shards: uint64(len(shards)), Window: w.String(), Taken: now(), By: by(),
		NewShards: n.NewShards, NewRecords: n.NewRecords, NewUnits: n.NewUnits, GoneShards: n.GoneShards,
	}
	for i := range shards {
		e.Records, e.Units, e.Bytes = e.Records+shards[i].Records, e.Units+shards[i].Units, e.Bytes+shards[i].Bytes
	}
	return e
}

// by describes this process for people.
func by() string {
	host, err := os.Hostname()
	if err != nil || len(host) > 255 {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// lookAtClocks records and logs shards with times in the future, if times decide what an epoch has:
// they count as the newest until then, whatever is written meanwhile.
func (t *Snapshotter) lookAtClocks(shards []catalog.LiveShard, now time.Time) {
	if t.config.Window.Measure != growing.Age && t.config.Newest != growing.ByTime {
		return
	}
	count, latest := 0, catalog.LiveShard{}
	for i := range shards {
		if s := &shards[i]; growing.IsAhead(s, now) {
			if count++; s.ModTimeNanos > latest.ModTimeNanos {
				latest = *s
			}
		}
	}
	text := ""
	if count > 0 {
		text = fmt.Sprintf("%s has the time %s, which is in the future: a clock is ahead; it counts as the newest until then", latest.Path, time.Unix(0, latest.ModTimeNanos).UTC().Format(time.RFC3339))
	}
	if count > 1 {
		text = fmt.Sprintf("%s, and %d more shards are so", text, count-1)
	}
	t.mu.Lock()
	before := t.ahead
	t.ahead = text
	t.mu.Unlock()
	if text != "" && text != before {
		t.config.Log.Warn("a shard has a time in the future: set the clocks, or touch the file", "why", text)
	}
}

// warnOfWindow logs that the latest epoch has another --window than this node's, once for each such
// window. This is not an error: the node that starts an epoch decides, and all read the same. But
// then the size of an epoch depends on which node happens to be first, which is hardly intended.
func (t *Snapshotter) warnOfWindow(e *run.Epoch) {
	mine := t.config.Window.String()
	t.mu.Lock()
	warn := e.Window != mine && e.Window != t.window && e.Epoch == t.latest
	if warn {
		t.window = e.Window
	}
	t.mu.Unlock()
	if warn {
		t.config.Log.Warn("an epoch was started with another --window, and the node that starts an epoch decides for all: use the same --window on every node",
			"epoch", e.Epoch, "taken_by", e.By, "its_window", e.Window, "window_here", mine)
	}
}

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
