package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// Catalog returns the catalog of an epoch's snapshot, and the record of the epoch. Each call
// returns a new catalog, which the caller closes; it stays usable after the snapshotter's Close.
//
// An epoch that any node has started has the shards recorded then. Those that this node has not
// indexed yet are indexed now. The epoch after the latest is started if take is set. Errors are
//
//	growing.ErrNotYet      it is the next one, and too little is new, or take is false
//	growing.ErrNoEpoch     it is after that, or from before the run was pinned
//	run.ErrGone            its snapshot is no longer stored
//	*catalog.LackingError  some of its shards are missing here: another call looks again
//	*catalog.DiffersError  one of its shards is different here
//
// If ctx ends, starting continues in the background, for the next call.
func (t *Snapshotter) Catalog(ctx context.Context, epoch uint64, take bool) (*catalog.Catalog, run.Epoch, error) {
	latest, err := t.find()
	if err != nil {
		return nil, run.Epoch{}, err
	}
	if epoch == latest+1 { // run.None + 1 is 0
		if !take {
			return nil, run.Epoch{}, &growing.NotYetError{Epoch: epoch}
		}
		refused := t.start(ctx, epoch)
		if refused != nil && !errors.Is(refused, growing.ErrNotYet) {
			return nil, run.Epoch{}, refused
		}
		if latest, err = t.find(); err != nil {
			return nil, run.Epoch{}, err
		}
		if refused != nil && (latest == run.None || latest < epoch) { // and no other node has started it
			return nil, run.Epoch{}, refused
		}
	}
	if latest == run.None || epoch > latest {
		return nil, run.Epoch{}, &growing.NoEpochError{Epoch: epoch, At: at(latest)}
	}
	return t.taken(ctx, epoch)
}

// CanTake returns nil if an epoch has been started, by any node, or could be started now. Like
// starting, it looks at the directory and waits for indexing; but it starts nothing. Errors:
// growing.ErrNotYet, growing.ErrNoEpoch.
func (t *Snapshotter) CanTake(ctx context.Context, epoch uint64) error {
	latest, err := t.find()
	switch {
	case err != nil:
		return err
	case latest != run.None && epoch <= latest:
		return nil
	case epoch != latest+1: // run.None + 1 is 0
		return &growing.NoEpochError{Epoch: epoch, At: at(latest)}
	}
	return t.look(ctx, epoch)
}

// at describes which epoch a run is at.
func at(latest uint64) string {
	if latest == run.None {
		return "this run has no epoch yet"
	}
	return fmt.Sprintf("this run is at %d; the next one is %d", latest, latest+1)
}

// taken returns the catalog of an epoch that has been started.
func (t *Snapshotter) taken(ctx context.Context, epoch uint64) (*catalog.Catalog, run.Epoch, error) {
	d, err := t.directory()
	if err != nil {
		return nil, run.Epoch{}, err
	}
	e, err := d.Epoch(epoch)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, run.Epoch{}, &growing.NoEpochError{Epoch: epoch, At: fmt.Sprintf("%s does not have it", d.Path())}
	}
	if err != nil {
		return nil, run.Epoch{}, err
	}
	t.warnOfWindow(&e)
	text, err := t.snapshot(d, e.Snapshot)
	if err != nil {
		return nil, e, fmt.Errorf("epoch %d: %w", epoch, err)
	}
	err = t.holdTaken(ctx, d, &e, text)
	if err != nil {
		return nil, e, err
	}
	c, err := t.seal(ctx, text)
	if err != nil {
		return nil, e, fmt.Errorf("epoch %d (started by %s, host/process): %w", epoch, e.By, err)
	}
	return c, e, nil
}

// seal returns the catalog of a snapshot. If shards are not indexed here, or have changed, it looks
// at the files, once each.
func (t *Snapshotter) seal(ctx context.Context, text []byte) (*catalog.Catalog, error) {
	looked := map[string]bool{}
	defer func() {
		for path := range looked { // it only counts once the watcher reports it, too
			t.queue.unlessSettled(path, func() { t.config.Index.Forget(path) })
		}
	}()
	for {
		c, err := t.config.Index.Seal(ctx, text)
		if err == nil {
			return c, nil
		}
		var paths []string
		if lacking, ok := errors.AsType[*catalog.LackingError](err); ok {
			paths = lacking.Paths
		} else if differs, ok := errors.AsType[*catalog.DiffersError](err); ok {
			paths = []string{differs.Path}
		}
		any, failed := t.indexPaths(ctx, paths, looked)
		if failed != nil {
			return nil, failed
		}
		if !any {
			return nil, err
		}
	}
}

// indexPaths indexes files that have not been looked at yet, and reports whether any differed from
// what the live index knows. A file that the watcher has not reported as settled does not count for
// the next epoch yet.
func (t *Snapshotter) indexPaths(ctx context.Context, paths []string, looked map[string]bool) (any bool, err error) {
	for batch := range slices.Chunk(paths, batchFiles) {
		some, err := t.indexBatch(ctx, batch, looked)
		any = any || some
		if err != nil {
			return any, err
		}
	}
	return any, nil
}

// indexBatch is indexPaths for a few files. It holds the indexing turn from the look at a file
// until it is indexed, so that no later state of the file is indexed meanwhile: the last one to be
// indexed wins.
func (t *Snapshotter) indexBatch(ctx context.Context, paths []string, looked map[string]bool) (any bool, err error) {
	if err := t.beginIndexing(ctx); err != nil {
		return false, err
	}
	defer t.endIndexing()
	var files []storage.Object
	for _, path := range paths {
		if looked[path] {
			continue
		}
		looked[path] = true
		o, err := t.stat(ctx, path)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil: // it is not here yet, or no longer; the caller returns that error
			continue
		}
		if written, _ := filesystem.Written(filepath.Join(t.config.Root, path)); written {
			continue
		}
		files = append(files, o)
	}
	if len(files) == 0 {
		return false, nil
	}
	return true, t.config.Index.Index(ctx, files)
}

// stat returns the description of a file for indexing.
func (t *Snapshotter) stat(ctx context.Context, path string) (storage.Object, error) {
	return storage.StatStable(ctx, t.config.Storage, path)
}

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
			t.config.Log.Error("shards can't be indexed; trying again later", "after", retryAfter, "error", err)
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
			return fmt.Errorf("indexing new files: %w", now.failure)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// queue has the settled files to be indexed, in the order in which they were reported. One
// goroutine takes from it. It takes about 50 bytes per settled file, without pointers that garbage
// collections would follow, and twice as much again while the file waits.
type queue struct {
	mu      sync.Mutex
	wake    chan struct{}      // capacity 1: the queue is not empty
	changed chan struct{}      // closed and replaced when done, version or failures change
	settled map[pathSum]uint64 // the file's position in the queue, also after it was indexed
	waiting []queued
	told    uint64 // positions so far
	done    uint64 // all files up to this position are indexed or gone
	version uint64 // version of the index
	working bool
	gone    []string // removed while working

	failures uint64
	failure  error // the last failure, nil once indexing has succeeded
}

// pathSum identifies a path: with 128 bits no two of a dataset collide.
type pathSum xxh3.Uint128

func sumOf(path string) pathSum { return pathSum(xxh3.HashString128(path)) }

type queued struct {
	place  uint64
	object storage.Object
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), changed: make(chan struct{}), settled: map[pathSum]uint64{}}
}

// add appends a settled file.
func (q *queue) add(o storage.Object) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told++
	q.settled[sumOf(o.Path)] = q.told
	q.waiting = append(q.waiting, queued{q.told, o})
	q.rouse()
}

// rouse wakes the goroutine that takes from the queue.
func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// remove removes a file that is gone, or is being written.
func (q *queue) remove(path string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.settled, sumOf(path))
	if q.working {
		q.gone = append(q.gone, path)
	}
	q.moved()
}

// moved wakes all waiters. It is called with mu held.
func (q *queue) moved() {
	q.version++
	close(q.changed)
	q.changed = make(chan struct{})
}

// unlessSettled calls f if a file is not settled, according to the watcher's reports; it stays so
// until f returns. f must not call the queue.
func (q *queue) unlessSettled(path string, f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.settled[sumOf(path)]; !ok {
		f()
	}
}

// onlySettled removes the shards that are not settled, in place.
func (q *queue) onlySettled(shards []catalog.LiveShard) []catalog.LiveShard {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(shards, func(s catalog.LiveShard) bool {
		_, ok := q.settled[sumOf(s.Path)]
		return !ok
	})
}

// start returns the next files, at most most; the caller reports their outcome with end. There may
// be none although some were waiting, if they are gone.
func (q *queue) start(most int) (files []storage.Object, place uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	place = q.done
	n := 0
	for ; n < len(q.waiting) && len(files) < most; n++ {
		w := q.waiting[n]
		if place = w.place; q.settled[sumOf(w.object.Path)] == w.place {
			files = append(files, w.object)
		}
	}
	if n > 0 {
		q.working = true
	}
	return files, place
}

// left returns how many files are still to be indexed.
func (q *queue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// end records that the files up to a position have been indexed, or the error, in which case they
// stay. It returns the files that were removed meanwhile.
func (q *queue) end(place uint64, err error) (gone []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	gone, q.gone, q.working = q.gone, nil, false
	if err == nil && place == q.done {
		return gone // there were none
	}
	if q.failure = err; err != nil {
		q.failures++
		q.moved()
		return gone
	}
	n := 0
	for n < len(q.waiting) && q.waiting[n].place <= place {
		n++
	}
	if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
		q.waiting = nil // free its memory
	}
	q.done = max(q.done, place)
	q.moved()
	return gone
}

// state returns the progress of the queue, and a channel that is closed when it changes.
func (q *queue) state() (s queueState, changed <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return queueState{q.told, q.done, q.version, q.failures, q.failure}, q.changed
}

type queueState struct {
	told, done, version uint64
	failures            uint64
	failure             error
}

// again records the outcome of indexing files that were not taken from the queue.
func (q *queue) again(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failure = err; err != nil {
		q.failures++
	}
	q.moved()
}
