package stream

import (
	"slices"
	"sync"
)

// maxParkedHandles is how many handles remember places: each up to maxParked of
// them, of 7 KiB each. One that has forgotten its own finds its place again by a
// walk of 2048 records on average.
const maxParkedHandles = 256

// parking are the handles that may have parked walkers, the one that has made one
// last at the end. Its lock is taken before that of a handle.
type parking struct {
	mu   sync.Mutex
	list []*Handle
}

// add notes that a handle makes a walker, which is seldom where it reads on. Of
// too many, those that have made none for longest forget theirs; those that
// somebody reads from at the moment have the walkers that are in use.
func (p *parking) add(h *Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(slices.DeleteFunc(p.list, func(o *Handle) bool { return o == h }), h)
	h.mu.Lock()
	h.parks = true
	h.mu.Unlock()
	for i := 0; len(p.list) > maxParkedHandles && i < len(p.list)-1; {
		o := p.list[i]
		if !o.mu.TryLock() {
			i++ // somebody is at it
			continue
		}
		o.unpark()
		o.mu.Unlock()
		p.list = slices.Delete(p.list, i, i+1)
	}
}

func (p *parking) remove(h *Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(o *Handle) bool { return o == h })
	h.mu.Lock()
	h.unpark()
	h.mu.Unlock()
}
