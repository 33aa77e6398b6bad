package filter

import (
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// arrivals are the files below SRC that nobody writes, while SRC is watched: a looker tells of
// them while others are filtered. It is safe for concurrent use.
type arrivals struct {
	news chan struct{} // of one place: files have come or gone

	mu             sync.Mutex
	files          map[string]*arrival
	todo           map[string]*arrival // of files: those without a result
	suspects       map[string]struct{} // not of files: paths that may be gone, and have results
	shards, passed uint64              // of files
	left           map[string]string   // not of files: names that are left out, and why
	once           *discover.Once      // of files: shards
}

// arrival is a file as it was told of.
type arrival struct {
	object  storage.Object
	kind    kind
	damaged *growing.Damaged // it has failed
	twin    string           // the shard that it is, too; "" for none
	again   bool             // that one has changed
}

// kind is what a file is.
type kind int

const (
	unknown kind = iota
	aShard
	noShard
)

// newArrivals is empty. The sources of results that are there already may be gone by now.
func newArrivals(root string, results []string) *arrivals {
	a := &arrivals{news: make(chan struct{}, 1), files: map[string]*arrival{}, todo: map[string]*arrival{}, suspects: map[string]struct{}{}, left: map[string]string{}, once: discover.NewOnce(root)}
	for _, path := range results {
		a.suspects[path] = struct{}{}
	}
	return a
}

// settled takes in a file; gone takes back one, which may also be written again.
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

// leaveOut takes in a name that is left out, and why; reason is "" once it is not there any more.
func (a *arrivals) leaveOut(path, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left[path] = reason; reason == "" {
		delete(a.left, path)
	}
}

// omitted are the names that are left out.
func (a *arrivals) omitted() (list []storage.Omission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path, reason := range a.left {
		list = append(list, storage.Omission{Path: path, Reason: reason})
	}
	return list
}

// tell says that there is news. a.mu is held.
func (a *arrivals) tell() {
	select {
	case a.news <- struct{}{}:
	default: // it has been said
	}
}

// due are the files that something is to be done about now, by path.
func (a *arrivals) due(now time.Time) (files []arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.todo {
		if f.damaged == nil || f.again || f.damaged.Again(lookOf(f.object), now) {
			files = append(files, *f)
		}
	}
	// slices.SortFunc would be compiled for this type: 16 KB of program.
	sort.Slice(files, func(i, j int) bool { return files[i].object.Path < files[j].object.Path })
	return files
}

// next is when a file that failed is due again, zero for never.
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

// take notes that a file is a shard, unless it is one that counts: then its path is returned.
func (a *arrivals) take(o storage.Object) (twin string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.find(o)
	if f == nil {
		return ""
	}
	// A twin that is being written again counts all the same: it has a result.
	if f.twin == "" || !a.once.Still(f.twin, o.Path) {
		f.twin = a.once.Twin(o)
	}
	if f.twin == "" {
		a.note(o, aShard)
	}
	return f.twin
}

// judge notes what a file is. What is no shard needs no more.
func (a *arrivals) judge(o storage.Object, k kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(o, k)
}

// note is judge. a.mu is held.
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

// reconsider has files judged again that were none of the shards, by their namings.
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

// find is a file, if it is still as it was told of. a.mu is held.
func (a *arrivals) find(o storage.Object) *arrival {
	f := a.files[o.Path]
	if f == nil || f.object != o {
		return nil
	}
	return f
}

// count counts a file once more or less. a.mu is held.
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

// counts are how many of the files are shards, and how many are none, with the names that are left
// out.
func (a *arrivals) counts() (shards, passed uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shards, a.passed + uint64(len(a.left))
}

// end notes what has become of a file: nil for what needs no more. It says whether a
// failure is news.
func (a *arrivals) end(o storage.Object, failure *Failure, now time.Time) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.find(o)
	switch {
	case f == nil: // it has changed, and is told of again, if it has not been
		return false
	case failure == nil:
		delete(a.todo, o.Path)
		return false
	}
	if f.again = false; f.damaged == nil {
		f.damaged = &growing.Damaged{}
	}
	// Of one that changes the looker is going to tell, as a rule before it is tried again.
	return f.damaged.See(lookOf(o), now) && !errors.Is(failure, errChanged)
}

// suspicious are the paths whose results may be to delete.
func (a *arrivals) suspicious() (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path := range a.suspects {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// acquit ends the suspicion of paths.
func (a *arrivals) acquit(paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, path := range paths {
		delete(a.suspects, path)
	}
}
