package scan

import (
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/spool"
)

// spooling is the spool.Owner of a scanner. The spool calls it without holding its lock.
type spooling struct{ sc *Scanner }

var (
	_ spool.Owner = spooling{}
	_ spool.Load  = (*load)(nil)
)

// assignSpool has a load read from the spool as soon as its bytes are there. It returns false if
// there is no room to read ahead. It is called with mu held.
func (sc *Scanner) assignSpool(ld *load, u budget.Urgency) bool {
	ld.clock.Store(sc.spool.Clock(ld.shard))
	asked, place, waits := sc.spool.Ask(ld, u)
	sc.cache.shrink() // for the tables of a shard that was admitted
	switch asked {
	case spool.Refused:
		return false
	case spool.Waits:
		ld.via = waits
		return true
	}
	if ld.seg, ld.off, ld.err = sc.cache.alloc(ld.layout.SizeBytes, u); ld.err != nil {
		sc.newsOfSpool(sc.spool.Leave(place))
		return ld.err != budget.ErrNoRoom
	}
	sc.readSpooled(place, ld)
	return true
}

// News applies what has happened to loads.
func (w spooling) News(n spool.News) {
	w.sc.mu.Lock()
	defer w.sc.mu.Unlock()
	w.sc.newsOfSpool(n)
}

// newsOfSpool is News with mu held.
func (sc *Scanner) newsOfSpool(n spool.News) {
	if _, ok := errors.AsType[*format.CorruptError](n.Err); ok {
		sc.breakShard(n.Shard, n.Err)
	}
	for _, l := range n.Failed {
		ld := l.(*load)
		ld.err = n.Err
		sc.finishLocked(ld)
	}
	for _, l := range n.Without {
		sc.assign(l.(*load), budget.Demand)
	}
	sc.cache.shrink()
	for _, x := range n.There {
		ld := x.Load.(*load)
		u := budget.Prefetch
		if ld.Waited() {
			u = budget.Demand
		}
		if ld.seg, ld.off, ld.err = sc.cache.alloc(ld.layout.SizeBytes, u); ld.err != nil {
			sc.finishLocked(ld)
			sc.newsOfSpool(sc.spool.Leave(x.Place))
			continue
		}
		sc.readSpooled(x.Place, ld)
	}
}

// readSpooled reads a load from the spool, to memory that it already has.
func (sc *Scanner) readSpooled(s *spool.Place, ld *load) {
	ld.spooled = s
	ld.pending.Store(1)
	ld.stage.Store(isQueued)
	sc.running.Add(1)
	sc.spool.Read(s, diskcache.Reading{Ranges: ld.layout.All(), Memory: ld.Memory(), Wanted: ld.begin, Done: func(err error) {
		if err != nil {
			ld.failed.CompareAndSwap(nil, &err)
		}
		ld.pending.Store(0)
		sc.arrived(ld)
	}})
}

// WantedSoon reads only atomic counts.
func (w spooling) WantedSoon(shard int, missing bool) bool {
	sc := w.sc
	x := sc.o.Index.Shard(shard)
	for piece := sc.pieces.Of(x.First); piece < sc.pieces.Len() && sc.pieces.Starts[piece] < x.First+x.Records; piece++ {
		if sc.wanted.Wanted(piece) && !(missing && sc.holds(piece)) {
			return true
		}
	}
	return false
}

// lostInSpool is called if a load that was read from the spool differs from what was written, or
// could not be read. The shard is removed from the spool, and the load is made from the dataset:
// through the spool at most once more, so the retries end.
func (sc *Scanner) lostInSpool(ld *load, why error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, other := range sc.spool.Lost(ld.spooled, why) {
		sc.bringAgain(other.(*load))
	}
	ld.seg.Pins.Unpin()
	ld.seg, ld.spooled = nil, nil
	ld.failed.Store(nil)
	ld.stage.Store(hasBegun)
	sc.bringAgain(ld)
	ld.damaged = true
	sc.newsOfSpool(sc.spool.Admit())
}

// bringAgain restarts a load of a shard that was dropped. A load that was read ahead, and has no
// waiters, ends instead, and is started again when a reader needs it.
func (sc *Scanner) bringAgain(ld *load) {
	switch {
	case sc.closed:
		ld.err = errClosed
	case !ld.Waited():
		ld.err = errCalledOff
	case ld.damaged || sc.spool.Avoids(ld.shard):
		sc.assign(ld, budget.Demand)
	default:
		sc.assignSpool(ld, budget.Demand)
	}
	if ld.err != nil {
		sc.finishLocked(ld)
	}
}

// closeSpool ends loads that nothing will complete any more, and closes the spool. It is called
// with mu held when nothing runs.
func (sc *Scanner) closeSpool() error {
	if sc.spool == nil {
		return nil
	}
	left, err := sc.spool.Close()
	for _, l := range left {
		ld := l.(*load)
		ld.err = errClosed
		sc.finishLocked(ld)
	}
	return err
}

// Shard implements spool.Load.
func (ld *load) Shard() int { return ld.shard }

// Waited reports whether a reader waits for the load. It takes no lock.
func (ld *load) Waited() bool { return ld.waiters.Load() > 0 }
