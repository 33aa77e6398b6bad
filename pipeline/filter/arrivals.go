package filter

import (
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
