package diskcache

const (
	// mostHoles is how many holes are remembered; if there are more, the fill looks at everything
	// again.
	mostHoles = 4096
	// mostAgain is how often a fill goes back for what it could not write itself.
	mostAgain = 4
)

// lost notes a flight whose pages are not in the cache: they are not wanted any more, or could not
// be written. A fill that has skipped them, because they were in transit, comes back for them at
// its end.
func (a *ahead) lost(f *flight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ranges) == 0 || a.skipped {
		return
	}
	a.lostOwn = a.lostOwn || f.fill
	if len(a.holes) >= mostHoles || len(a.holes) > 0 && &a.holes[0] == &a.ranges[0] {
		a.holes = a.ranges
		return
	}
	off := f.pages.begin * pageBytes
	a.holes = append(a.holes, Range{f.object.listed, off, min(f.pages.bytes(), f.object.sizeBytes-off)})
}

// goBack makes the fill continue with what was lost, at its end. It returns false if nothing was
// lost, or if trying again is useless: there was no room, or the fill keeps losing what it fetches.
// a.mu is held.
func (a *ahead) goBack() bool {
	if a.skipped || len(a.holes) == 0 {
		return false
	}
	if a.lostOwn {
		if a.again++; a.again > mostAgain {
			a.skipped, a.holes = true, nil
			return false
		}
	}
	a.todo, a.at, a.off, a.holes, a.lostOwn = a.holes, 0, 0, nil, false
	for i := range a.todo {
		a.done -= a.todo[i].SizeBytes
	}
	a.done = max(a.done, 0)
	return true
}
