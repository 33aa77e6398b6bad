package stream

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// laidOutBytes bounds the layouts in memory. The layout of 10⁸ records takes 200 KiB, plus 32
	// bytes per worker. A dropped layout is loaded from the shelf or computed again.
	laidOutBytes = 8 << 20
	// leastLaidOut is the number of layouts that stay whatever they take: of the epoch that is
	// read, of the next one, and of two more.
	leastLaidOut = 4
)

// laidOut holds the sets whose layouts are in memory, a bounded number. The least recently used
// layout is dropped first.
type laidOut struct {
	clock atomic.Uint64 // number of layouts added so far

	mu    sync.Mutex
	list  []laidOutSet
	bytes int64
}

type laidOutSet struct {
	set    *Set
	layout *pendingLayout
	bytes  int64
}

// add records that a set has its layout.
func (l *laidOut) add(s *Set, p *pendingLayout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.used.Store(l.clock.Add(1))
	x := laidOutSet{s, p, p.layout.memoryBytes()}
	l.list = append(l.list, x)
	l.bytes += x.bytes
	for l.bytes > laidOutBytes && len(l.list) > leastLaidOut {
		oldest := 0
		for i, o := range l.list {
			if o.set.used.Load() < l.list[oldest].set.used.Load() {
				oldest = i
			}
		}
		o := l.list[oldest]
		l.list = slices.Delete(l.list, oldest, oldest+1)
		l.bytes -= o.bytes
		o.set.drop(o.layout)
	}
}

// drop forgets a layout. Callers that hold it keep using it.
func (s *Set) drop(p *pendingLayout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == p {
		s.pending = nil
	}
}
