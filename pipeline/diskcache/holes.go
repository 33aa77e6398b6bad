package diskcache

const (
	// mostHoles are remembered one by one; where there are more, the fill looks at all again.
	mostHoles = 4096
	// mostAgain is how often a fill goes back for what it could not write itself.
	mostAgain = 4
)

// lost is told of a flight whose pages have not come into the cache: who wanted them does not
// any more, or they could not be written. A fill that has passed them by, since they were on
// their way, comes back for them at its end.
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

// goBack has the fill go on with what was lost, at its end. It says no where nothing was, or
// that is of no use: there was no room, or the fill loses again and again what it brings. a.mu
// is held.
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
