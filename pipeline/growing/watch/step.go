package watch

import (
	"container/heap"
	"context"
	"fmt"
	"path"
	"slices"
	"time"
)

const (
	// gather is how long reports are collected before the names in them are looked at.
	gather = 200 * time.Millisecond
	// everythingEvery is how often everything is looked at, whatever was reported.
	everythingEvery = 10 * time.Minute
)

// agenda has the times at which work is due.
type agenda struct{ hinted, poll, everything time.Time }

// hinted records that a change was reported.
func (l *Watcher) hinted(now time.Time) {
	if l.agenda.hinted.IsZero() {
		l.agenda.hinted = now.Add(gather)
	}
}

// nextStep returns when step should be called again.
func (l *Watcher) nextStep() time.Time {
	next := l.agenda.everything
	for _, t := range []time.Time{l.agenda.hinted, l.agenda.poll, l.due.next()} {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return next
}

// step looks at what is due, or, if asked is set, at everything that may have changed. It returns
// the error of the directories.
func (l *Watcher) step(ctx context.Context, now time.Time, asked bool) error {
	everything, poll := !now.Before(l.agenda.everything), asked || !now.Before(l.agenda.poll)
	if l.hints != nil && (asked || everything || !l.agenda.hinted.IsZero() && !now.Before(l.agenda.hinted)) {
		changes := l.hints.Take()
		l.agenda.hinted = time.Time{}
		if everything = everything || changes.All; !everything {
			l.named(ctx, changes.Dirs, now)
		}
	}
	switch {
	case everything:
		began := time.Now()
		l.everything(ctx, l.root, now)
		l.mu.Lock()
		l.status.Scan = time.Since(began)
		l.mu.Unlock()
		l.agenda.everything, l.agenda.poll = now.Add(everythingEvery), now.Add(l.config.Poll)
	case poll:
		l.pollRoot(ctx, now)
		for dir := range l.troubled {
			if d := l.find(dir); d != nil {
				l.listAgain(ctx, d, now)
			}
		}
		l.poll(ctx, l.root, now)
		l.agenda.poll = now.Add(l.config.Poll)
	}
	for _, file := range l.due.take(now) {
		l.look(ctx, path.Dir(file), path.Base(file), now)
	}
	return l.tell(ctx)
}

// named looks at the names that were reported.
func (l *Watcher) named(ctx context.Context, dirs map[string]map[string]struct{}, now time.Time) {
	for dir, names := range dirs {
		d := l.find(dir)
		switch {
		case d == nil:
		case names == nil:
			l.listAgain(ctx, d, now)
		default:
			for name := range names {
				l.look(ctx, dir, name, now)
			}
		}
	}
}

// look looks at one name in a directory.
func (l *Watcher) look(ctx context.Context, dir, name string, now time.Time) {
	if dir == "." {
		dir = ""
	}
	d := l.find(dir)
	if d == nil {
		return
	}
	if err := l.entry(ctx, d, name, l.round, now); err != nil {
		d.modTimeNanos = 0
		l.troubled[d.path] = err
	}
}

// listAgain lists a directory under its current name: it may be gone, or a different one.
func (l *Watcher) listAgain(ctx context.Context, d *directory, now time.Time) {
	if d == l.root {
		_ = l.list(ctx, d, now) // tell returns the error
		return
	}
	d.watched, d.modTimeNanos = false, 0
	l.look(ctx, path.Dir(d.path), path.Base(d.path), now)
}

// everything lists all directories.
func (l *Watcher) everything(ctx context.Context, d *directory, now time.Time) {
	l.listAgain(ctx, d, now)
	if ctx.Err() != nil {
		return
	}
	for _, sub := range d.dirs {
		l.everything(ctx, sub, now)
	}
}

// pollRoot lists the root again if it is no longer the same directory: a process that has the old
// one open keeps it alive, so that nothing is reported about it, nor about the new directory with
// its name.
func (l *Watcher) pollRoot(ctx context.Context, now time.Time) {
	self, err := l.stat("", true)
	if err != nil || self.Device != l.root.device || self.Inode != l.root.inode {
		l.listAgain(ctx, l.root, now)
	}
}

// replaced records that the root is a different directory: the original one again, for example
// after a file system was remounted, or one that has taken its place.
func (l *Watcher) replaced(self [2]uint64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if self == l.first {
		l.config.Log.Warn("the dataset's directory is the original one again", "directory", l.config.Root)
		l.status.Replaced = time.Time{}
		return
	}
	l.config.Log.Warn("the dataset's directory was replaced: it was created again, or something was mounted or unmounted there", "directory", l.config.Root)
	l.status.Replaced = now
}

// poll lists the changed directories among those without change reports.
func (l *Watcher) poll(ctx context.Context, d *directory, now time.Time) {
	if !d.watched && ctx.Err() == nil {
		self, err := l.stat(d.path, d.follows())
		if err != nil || self.ModTimeNanos != d.modTimeNanos || self.Inode != d.inode {
			l.listAgain(ctx, d, now)
		}
	}
	for _, sub := range d.dirs {
		l.poll(ctx, sub, now)
	}
}

// tell updates the status. It returns the error of the directories.
func (l *Watcher) tell(ctx context.Context) error {
	err := ctx.Err()
	for dir, trouble := range l.troubled {
		err = fmt.Errorf("listing dataset %s: %w (files may be missing until it can be listed)", l.full(dir), trouble)
		break
	}
	if n := len(l.troubled); n > 1 {
		err = fmt.Errorf("%w; and %d more directories", err, n-1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.status.Err == nil {
		l.config.Log.Warn("a directory of the dataset can't be listed", "error", err)
	}
	l.status.Err, l.status.Files, l.status.Settling = err, l.settled, l.settling.Len()
	return err
}

// dueFiles are the files that are not settled, with the times of their next looks.
type dueFiles struct {
	order dueHeap
	at    map[string]time.Time // entries of order with a different time are out of date
}

type dueFile struct {
	path string
	at   time.Time
}

// follow schedules a look at a file.
func (q *dueFiles) follow(path string, at time.Time) {
	if q.at == nil {
		q.at = map[string]time.Time{}
	}
	if q.at[path].Equal(at) {
		return
	}
	q.at[path] = at
	heap.Push(&q.order, dueFile{path, at})
	if len(q.order) > 2*len(q.at)+16 { // mostly out of date
		q.order = slices.DeleteFunc(q.order, func(f dueFile) bool { return !q.at[f.path].Equal(f.at) })
		heap.Init(&q.order)
	}
}

func (q *dueFiles) forget(path string) {
	delete(q.at, path)
	q.shrink()
}

// shrink frees the memory when nothing is left: otherwise the memory for a first look at very many
// files would be kept.
func (q *dueFiles) shrink() {
	if len(q.at) == 0 {
		q.at, q.order = nil, nil
	}
}

// next returns when the next file is due; zero for never.
func (q *dueFiles) next() time.Time {
	if len(q.order) == 0 {
		return time.Time{}
	}
	return q.order[0].at
}

// take removes and returns the files that are due.
func (q *dueFiles) take(now time.Time) (paths []string) {
	for len(q.order) > 0 && !q.order[0].at.After(now) {
		f := heap.Pop(&q.order).(dueFile)
		if q.at[f.path].Equal(f.at) {
			delete(q.at, f.path)
			paths = append(paths, f.path)
		}
	}
	q.shrink()
	return paths
}

type dueHeap []dueFile

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(dueFile)) }
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
