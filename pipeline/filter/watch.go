package filter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/growing/watch"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// gather is how long a round waits for more files after the first one: files that arrive together
// are filtered together.
const gather = 200 * time.Millisecond

// watch filters files that arrive in SRC until ctx ends.
func (r *run) watch(ctx context.Context) (err error) {
	w := watcher{run: r}
	var results []string
	if r.Mirror {
		results = r.ledger.Paths()
	}
	r.arrivals = newArrivals(r.Source, results)
	w.looker, err = watch.Open(ctx, watch.Config{
		Root: r.Source, Match: func(path string, _ bool) bool { return !r.isResult(path) }, StatStable: r.arrivals.settled, Gone: r.arrivals.gone, LeftOut: r.arrivals.leaveOut,
		Settle: r.Settle, Poll: r.Poll, NoHints: r.noHints,
	})
	if err != nil {
		return fmt.Errorf("SRC: %w", err)
	}
	defer func() { err = errors.Join(err, w.looker.Close()) }()
	for {
		before := r.Progress.Counts()
		if err := w.round(ctx); err != nil {
			return err
		}
		after := r.Progress.Counts()
		if after.Filtered != before.Filtered || after.Unchanged != before.Unchanged || after.Failed != before.Failed || after.Removed != before.Removed {
			r.Round(after)
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// watcher is a run with Watch.
type watcher struct {
	*run
	looker   *watch.Watcher
	byName   bool            // names decide which files are shards
	namings  map[string]bool // of shards
	polls    bool            // polling was already warned about
	mirrored time.Time
}

// wait waits until there is something to do, at most for Poll.
func (w *watcher) wait(ctx context.Context) error {
	wait := w.Poll
	if at := w.arrivals.next(); !at.IsZero() {
		wait = max(0, min(wait, time.Until(at)))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	case <-w.arrivals.news:
		return sleep(ctx, gather)
	}
}

// round filters the files that have arrived.
func (w *watcher) round(ctx context.Context) error {
	status := w.looker.Status()
	if status.Watch == "poll" && !w.polls {
		w.polls = true
		w.Warn(fmt.Sprintf("SRC is looked at every %s (--poll): %s", w.Poll, status.Why))
	}
	if status.Err != nil {
		w.warnOnce("SRC: " + status.Err.Error())
	}
	files := w.arrivals.due(time.Now())
	if err := w.mirror(ctx, files, status); err != nil {
		return err
	}
	shards, err := w.judge(ctx, files)
	if err != nil {
		return err
	}
	w.Progress.change(func(c *Counts) {
		c.Writing = uint64(status.Settling)
		c.Shards, c.Passed = w.arrivals.counts()
	})
	return w.filterAll(ctx, shards)
}

// judge returns the shards among files. The first files determine the format of SRC.
func (w *watcher) judge(ctx context.Context, files []arrival) (shards []discover.Shard, err error) {
	var fresh []storage.Object
	for _, f := range files {
		if f.kind == aShard { // it has failed, and is tried again
			shards = append(shards, discover.AsShard(w.format.Unpacker, f.object))
			continue
		}
		fresh = append(fresh, f.object)
	}
	if len(fresh) == 0 {
		return shards, nil
	}
	if w.format == nil {
		return w.first(ctx, fresh)
	}
	target, err := w.target()
	if err != nil {
		return nil, err
	}
	formats := make([]discover.Judgement, len(fresh))
	if w.Config.Format.Name == "auto" {
		if formats, err = w.contents(ctx, fresh); err != nil {
			return nil, err
		}
	}
	w.learn(fresh, formats)
	for i, o := range fresh {
		s := discover.AsShard(w.format.Unpacker, o)
		err := formats[i].Err
		switch {
		case target.LeavesOutWithin(o.Path, w.format.Format.Name) || err == nil && !w.isShard(o, formats[i]):
			w.arrivals.judge(o, noShard)
			continue
		case err == nil:
			twin := w.arrivals.take(o)
			if twin == "" {
				shards = append(shards, s)
				continue
			}
			err = errors.New(discover.TwiceReason(o.Path, twin))
		}
		if err := w.lose(&source{Shard: s, path: filepath.Join(w.Source, o.Path)}, &Failure{Shard: o.Path, Err: err, Source: true}); err != nil {
			return nil, err
		}
	}
	return shards, nil
}

// isShard reports whether a file is a shard.
func (w *watcher) isShard(o storage.Object, j discover.Judgement) bool {
	if w.Config.Format.Name != "auto" {
		return !w.byName || discover.Takes(w.format.Unpacker, o.Path)
	}
	return j.IsShard(w.format.Unpacker, o.Path, w.byName, w.namings[discover.NamingOf(o.Path)])
}

// learn records the namings of shards: every file with such a naming is a shard, whatever its
// contents, even if it arrived before the first shard.
func (w *watcher) learn(files []storage.Object, judged []discover.Judgement) {
	fresh := map[string]bool{}
	for i, o := range files {
		if n := discover.NamingOf(o.Path); judged[i].Err == nil && !w.namings[n] && w.isShard(o, judged[i]) {
			w.namings[n], fresh[n] = true, true
		}
	}
	if len(fresh) > 0 {
		w.arrivals.reconsider(fresh)
	}
}

// target returns SRC without excluded files.
func (r *run) target() (discover.Target, error) {
	t, err := discover.ParseTarget(r.Source)
	if err == nil {
		err = t.Exclude(r.Exclude)
	}
	return t, err
}

// contents returns the formats of files.
func (w *watcher) contents(ctx context.Context, files []storage.Object) ([]discover.Judgement, error) {
	target, err := w.target()
	if err != nil {
		return nil, err
	}
	a, err := discover.NewArrivals(discover.Config{Target: target, Format: w.Config.Format, Storage: w.storage, Reads: w.storage})
	if err != nil {
		return nil, err
	}
	return a.Judge(ctx, files)
}

// first determines the format of SRC from its first files. If that is not possible, it waits for
// other files.
func (w *watcher) first(ctx context.Context, files []storage.Object) ([]discover.Shard, error) {
	shards, err := w.discover(ctx, files, w.arrivals.omitted())
	if _, none := errors.AsType[*NoShardsError](err); none {
		w.warnOnce(err.Error() + " (waiting for other files)")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	is := make(map[string]bool, len(shards))
	w.namings = map[string]bool{}
	for _, s := range shards {
		is[s.Object.Path], w.namings[discover.NamingOf(s.Object.Path)] = true, true
		w.byName = w.byName || discover.Takes(w.format.Unpacker, s.Object.Path)
	}
	for _, o := range files {
		k := noShard
		if is[o.Path] {
			k = aShard
		}
		w.arrivals.judge(o, k)
	}
	return shards, nil
}

// mirror deletes results every Poll, and earlier if they are in the way of new results.
func (w *watcher) mirror(ctx context.Context, files []arrival, status watch.Status) error {
	if !w.Mirror {
		return nil
	}
	suspects := w.arrivals.suspicious()
	if len(suspects) == 0 || time.Since(w.mirrored) < w.Poll && !inTheWay(suspects, files) {
		return nil
	}
	w.mirrored = time.Now()
	var gone []string
	for _, path := range suspects {
		if isGone(filepath.Join(w.Source, path)) {
			gone = append(gone, path)
		}
	}
	done, err := w.run.mirror(ctx, gone, status.Files+status.Settling == 0 || isEmpty(w.Source))
	if done {
		w.arrivals.acquit(gone)
	}
	return err
}

// inTheWay reports whether a path that may be gone is a directory of one of the files, or one of
// them is a directory of such a path.
func inTheWay(suspects []string, files []arrival) bool {
	directories, names := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		names[f.object.Path] = true
		for dir := filepath.Dir(f.object.Path); dir != "."; dir = filepath.Dir(dir) {
			directories[dir] = true
		}
	}
	for _, path := range suspects {
		if directories[path] {
			return true
		}
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			if names[dir] {
				return true
			}
		}
	}
	return false
}

// isGone reports whether there is certainly no file under a path.
func isGone(path string) bool {
	info, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && !info.Mode().IsRegular()
}

// isEmpty reports whether a directory is empty, apart from hidden names, or can't be read.
func isEmpty(path string) bool {
	d, err := os.Open(path)
	if err != nil {
		return true
	}
	defer func() { _ = d.Close() }()
	for {
		names, err := d.Readdirnames(100)
		for _, name := range names {
			if !strings.HasPrefix(name, ".") {
				return false
			}
		}
		if err != nil {
			return true
		}
	}
}

// arrivals tracks the files below SRC that no process writes, while SRC is watched: a looker
// reports them while others are filtered. It is safe for concurrent use.
type arrivals struct {
	news chan struct{} // capacity 1: files have arrived or gone

	mu             sync.Mutex
	files          map[string]*arrival
	todo           map[string]*arrival // subset of files: those without a result
	suspects       map[string]struct{} // not in files: paths that may be gone and have results
	shards, passed uint64              // among files
	left           map[string]string   // not in files: names that are left out, and the reasons
	once           *discover.Once      // the shards among files
}

// arrival is a file in the state that was reported.
type arrival struct {
	object  storage.Object
	kind    kind
	damaged *discover.Damaged // set if it has failed
	twin    string            // another file with the same shard; "" if none
	again   bool              // the twin has changed
}

// kind is what a file is.
type kind int

const (
	unknown kind = iota
	aShard
	noShard
)

// newArrivals returns an empty arrivals. results are the sources of existing results, which may be
// gone by now.
func newArrivals(root string, results []string) *arrivals {
	a := &arrivals{news: make(chan struct{}, 1), files: map[string]*arrival{}, todo: map[string]*arrival{}, suspects: map[string]struct{}{}, left: map[string]string{}, once: discover.NewOnce(root)}
	for _, path := range results {
		a.suspects[path] = struct{}{}
	}
	return a
}

// settled adds a file; gone removes one, which may also be because it is being rewritten.
func (a *arrivals) settled(o storage.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &arrival{object: o}
	a.files[o.Path], a.todo[o.Path] = f, f
	delete(a.suspects, o.Path)
	a.tell()
}

func (a *arrivals) gone(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.files[path]; f != nil {
		a.count(f, -1)
	}
	delete(a.files, path)
	delete(a.todo, path)
	for _, f := range a.todo {
		f.again = f.again || f.twin == path
	}
	a.suspects[path] = struct{}{}
	a.tell()
}

// leaveOut records a name that is left out, and the reason; reason is "" once it no longer exists.
func (a *arrivals) leaveOut(path, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left[path] = reason; reason == "" {
		delete(a.left, path)
	}
}

// omitted returns the names that are left out.
func (a *arrivals) omitted() (list []storage.Omission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path, reason := range a.left {
		list = append(list, storage.Omission{Path: path, Reason: reason})
	}
	return list
}

// tell signals that there is news. It is called with a.mu held.
func (a *arrivals) tell() {
	select {
	case a.news <- struct{}{}:
	default: // already signalled
	}
}

// due returns the files that need work now, by path.
func (a *arrivals) due(now time.Time) (files []arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.todo {
		if f.damaged == nil || f.again || f.damaged.Again(lookOf(f.object), now) {
			files = append(files, *f)
		}
	}
	// slices.SortFunc would be instantiated for this type: 16 KB of program.
	sort.Slice(files, func(i, j int) bool { return files[i].object.Path < files[j].object.Path })
	return files
}

// next returns when a failed file is due again, zero for never.
func (a *arrivals) next() (at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.todo {
		if f.damaged != nil && (at.IsZero() || f.damaged.Next().Before(at)) {
			at = f.damaged.Next()
		}
	}
	return at
}

// take records that a file is a shard, unless it is the same shard as another file that counts:
// then it returns that file's path.
func (a *arrivals) take(o storage.Object) (twin string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.find(o)
	if f == nil {
		return ""
	}
	// A twin that is being rewritten still counts: it has a result.
	if f.twin == "" || !a.once.Still(f.twin, o.Path) {
		f.twin = a.once.Twin(o)
	}
	if f.twin == "" {
		a.note(o, aShard)
	}
	return f.twin
}

// judge records the kind of a file. A file that is not a shard needs no more work.
func (a *arrivals) judge(o storage.Object, k kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(o, k)
}

// note is judge with a.mu held.
func (a *arrivals) note(o storage.Object, k kind) {
	f := a.find(o)
	if f == nil || f.kind == k {
		return
	}
	a.count(f, -1)
	f.kind = k
	a.count(f, 1)
	if k == noShard {
		delete(a.todo, o.Path)
	}
}

// reconsider schedules another judgement of files that were not shards and have one of the namings.
func (a *arrivals) reconsider(namings map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path, f := range a.files {
		if f.kind == noShard && namings[discover.NamingOf(path)] {
			a.count(f, -1)
			f.kind, a.todo[path] = unknown, f
			a.tell()
		}
	}
}

// find returns a file if it is unchanged since it was reported. It is called with a.mu held.
func (a *arrivals) find(o storage.Object) *arrival {
	f := a.files[o.Path]
	if f == nil || f.object != o {
		return nil
	}
	return f
}

// count adds by to the counts for a file's kind. It is called with a.mu held.
func (a *arrivals) count(f *arrival, by int) {
	switch f.kind {
	case aShard:
		if a.shards += uint64(by); by > 0 {
			a.once.Add(f.object)
		} else {
			a.once.Remove(f.object)
		}
	case noShard:
		a.passed += uint64(by)
	}
}

// counts returns how many of the files are shards, and how many are not, including the names that
// are left out.
func (a *arrivals) counts() (shards, passed uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shards, a.passed + uint64(len(a.left))
}

// end records the outcome for a file; failure is nil if it needs no more work. It reports whether a
// failure is news.
func (a *arrivals) end(o storage.Object, failure *Failure, now time.Time) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.find(o)
	switch {
	case f == nil: // it has changed, and is or will be reported again
		return false
	case failure == nil:
		delete(a.todo, o.Path)
		return false
	}
	if f.again = false; f.damaged == nil {
		f.damaged = &discover.Damaged{}
	}
	// A change is reported by the looker, usually before the file is tried again.
	return f.damaged.See(lookOf(o), now) && !errors.Is(failure, errChanged)
}

// suspicious returns the paths whose results may have to be deleted.
func (a *arrivals) suspicious() (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path := range a.suspects {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// acquit removes paths from the suspects.
func (a *arrivals) acquit(paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, path := range paths {
		delete(a.suspects, path)
	}
}
