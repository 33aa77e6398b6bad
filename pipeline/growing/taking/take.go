package taking

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

// attempt is one try to take an epoch, or a look at whether it could be taken. Those who ask
// meanwhile wait for it as well.
type attempt struct {
	epoch uint64
	takes bool
	done  chan struct{}
	err   error
}

// judged is whether an epoch can be taken, of what was indexed then.
type judged struct {
	version uint64 // of the queue
	epoch   uint64
	short   *growing.NotYetError // nil where there is enough
}

// take takes an epoch, or waits for an attempt that does. It goes on when ctx ends.
func (t *Taker) take(ctx context.Context, epoch uint64) error {
	return t.try(ctx, attempt{epoch: epoch, takes: true})
}

// look looks as take does, and takes nothing.
func (t *Taker) look(ctx context.Context, epoch uint64) error {
	return t.try(ctx, attempt{epoch: epoch})
}

func (t *Taker) try(ctx context.Context, want attempt) error {
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

// attemptAt gives the attempt that is under way, or begins the one that is wanted.
func (t *Taker) attemptAt(want attempt) (a *attempt, mine bool, err error) {
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

// mostTries is how often shards are chosen anew that have gone before they could be held.
const mostTries = 3

// takeNow looks at what there is now, and takes the epoch if enough is new, and a takes it.
func (t *Taker) takeNow(ctx context.Context, a *attempt) error {
	for try := 1; ; try++ {
		err := t.takeOnce(ctx, a)
		gone, ok := errors.AsType[*goneError](err)
		if !ok {
			return err
		}
		if try == mostTries {
			return fmt.Errorf("epoch %d is not taken: %w", a.epoch, err)
		}
		t.config.Log.Info("shards are chosen again: one was deleted or replaced meanwhile", "epoch", a.epoch, "shard", gone.path)
	}
}

func (t *Taker) takeOnce(ctx context.Context, a *attempt) error {
	epoch := a.epoch
	if err := t.looker.Scan(ctx); err != nil {
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

// ended says that the taker is closed, where that is why something failed.
func (t *Taker) ended(err error) error {
	if t.ctx.Err() != nil {
		return errClosed
	}
	return err
}

// choose gives the shards of the window, as they are now, the newest first. Files that were
// indexed because a snapshot has them, and are not settled, don't count.
func (t *Taker) choose() []growing.Shard {
	shards := t.queue.onlySettled(t.config.Stock.Shards())
	growing.Newest(shards, t.config.Newest)
	now := time.Now()
	t.lookAtClocks(shards, now)
	return t.config.Window.Choose(shards, now)
}

// compare gives the text of the snapshot that shards are, nil for none, and what it has that
// the epoch before has not.
func (t *Taker) compare(epoch uint64, chosen []growing.Shard) (text []byte, n growing.News, err error) {
	before, err := t.textBefore(epoch)
	if err != nil || len(chosen) == 0 { // there may be no format yet, so no text
		return nil, growing.News{}, err
	}
	if text, err = t.config.Stock.Text(chosen); err != nil {
		return nil, growing.News{}, err
	}
	if n, err = catalog.NewsOf(before, text); err != nil {
		return nil, growing.News{}, fmt.Errorf("compare epoch %d with the one before: %w", epoch, err)
	}
	return text, n, nil
}

// textBefore is that of the epoch before, nil where there is none. Where its snapshot is
// kept no longer, there is none either: all counts as new.
func (t *Taker) textBefore(epoch uint64) ([]byte, error) {
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

// snapshot is the text of a snapshot that the run directory keeps. It is read only if it is
// not the one that was used last.
func (t *Taker) snapshot(d *run.Directory, fingerprint string) ([]byte, error) {
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

func (t *Taker) remember(fingerprint string, text []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text, t.textName = text, fingerprint
}

// enough says why the epoch is not there yet.
func (t *Taker) enough(epoch uint64, chosen []growing.Shard, n growing.News) *growing.NotYetError {
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

// goneError says that a shard was deleted or written anew after it was chosen, and before it
// was held: an epoch of it could not be read.
type goneError struct{ path string }

func (e *goneError) Error() string {
	return fmt.Sprintf("%s was deleted or replaced before --hold could keep it: ask for the epoch again, and do not change shards that are so new", e.path)
}

// publish takes the epoch, of these shards, whose text is given, unless another node does so
// first. version is that of the queue of which they were chosen.
func (t *Taker) publish(epoch uint64, chosen []growing.Shard, text []byte, n growing.News, version uint64) error {
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

// nothingNew notes for Status that all of what there was is in an epoch now, so that it need
// not be found out anew.
func (t *Taker) nothingNew(epoch uint64, chosen []growing.Shard, version uint64) {
	n := news{version: version, latest: epoch, at: time.Now(), newest: chosen[0].Path}
	n.short = t.enough(epoch+1, chosen, n.news)
	t.mu.Lock()
	defer t.mu.Unlock()
	n.took = t.news.took
	t.news = n
}

// epochOf is what is recorded of an epoch.
func epochOf(number uint64, shards []growing.Shard, n growing.News, w growing.Window) run.Epoch {
	e := run.Epoch{
		Epoch: number, Shards: uint64(len(shards)), Window: w.String(), Taken: now(), By: by(),
		NewShards: n.NewShards, NewRecords: n.NewRecords, NewUnits: n.NewUnits, GoneShards: n.GoneShards,
	}
	for i := range shards {
		e.Records, e.Units, e.Bytes = e.Records+shards[i].Records, e.Units+shards[i].Units, e.Bytes+shards[i].Bytes
	}
	return e
}

// by is this process, to people.
func by() string {
	host, err := os.Hostname()
	if err != nil || len(host) > 255 {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
