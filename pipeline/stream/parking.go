package stream

import (
	"slices"
	"sync"
)

// maxParkedHandles is how many handles remember positions: each up to maxParked of them, at 7 KiB
// each. A handle that has dropped its walkers finds its position again by walking over 2048 records
// on average.
const maxParkedHandles = 256

// parking is the list of handles that may have parked walkers; the one that made a walker last is
// at the end. Its lock is taken before that of a handle.
type parking struct {
	mu   sync.Mutex
	list []*Handle
}

// add records that a handle makes a walker, which is rare for sequential reads. If there are too
// many handles, those that made a walker longest ago drop theirs; handles that are being read keep
// the walkers in use.
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
			i++ // in use
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
