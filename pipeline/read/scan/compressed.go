package scan

import (
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/spool"
)

// decoding is the decode.Work of a scanner. Decoders call it without locks.
type decoding struct{ sc *Scanner }

var (
	_ decode.Work = decoding{}
	_ decode.Load = (*load)(nil)
)

// assign gives a load to a decoder. It is called with mu held, so that the decoder can't complete
// it before everything is noted. It returns false if there is no decoder to read ahead.
func (sc *Scanner) assign(ld *load, u budget.Urgency) bool {
	d := sc.decoders.Assign(ld.shard, ld, u)
	if d == nil {
		return false
	}
	ld.clock.Store(d.Clock())
	ld.decoder, ld.via = d, d.Waits()
	return true
}

// Room allocates memory for a load that a decoder has reached.
func (w decoding) Room(l decode.Load) bool {
	sc, ld := w.sc, l.(*load)
	sc.mu.Lock()
	defer sc.mu.Unlock()
	u := budget.Prefetch
	if ld.Waited() {
		u = budget.Demand
	}
	if ld.seg, ld.off, ld.err = sc.cache.alloc(ld.layout.SizeBytes, u); ld.err != nil {
		sc.finishLocked(ld)
		return false
	}
	return true
}

// Passing makes a load of the piece that comes next in the shard, if a reader will need it soon or
// all pieces fit into memory, it is not in memory or on its way, and there is memory for it.
func (w decoding) Passing(d *decode.Decoder, piece int) decode.Load {
	sc := w.sc
	if !sc.wanted.Wanted(piece) && !(sc.holdsAll && sc.places.Wants(piece)) {
		return nil
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.holds(piece) || sc.loads[piece] != nil {
		return nil
	}
	shard, l, some := sc.layoutOf(piece)
	if !some {
		return nil
	}
	ld := &load{piece: piece, shard: shard, layout: l, started: sc.now(), via: d.Waits(), done: make(chan struct{})}
	ld.clock.Store(d.Clock())
	var err error
	if ld.seg, ld.off, err = sc.cache.alloc(l.SizeBytes, budget.Opportunistic); err != nil {
		return nil
	}
	sc.loads[piece] = ld
	return ld
}

// Next returns the piece at which a decoder continues in a scan that sweeps: the next one that is
// wanted and not in memory.
func (w decoding) Next(shard, piece int) int {
	sc := w.sc
	if !sc.sweeps {
		return -1
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	s := sc.o.Index.Shard(shard)
	for ; piece < sc.pieces.Len() && sc.pieces.Starts[piece] < s.First+s.Records; piece++ {
		if sc.wanted.Wanted(piece) && !sc.holds(piece) && sc.loads[piece] == nil {
			return piece
		}
	}
	return -1
}

// Came completes a load whose bytes have arrived.
func (w decoding) Came(l decode.Load) {
	ld := l.(*load)
	w.sc.addNewline(ld)
	w.sc.verify(ld)
	w.sc.finish(ld)
}

// Broken makes a checksum error the result of every later read of the shard, because what was read
// before can't be trusted either.
func (w decoding) Broken(shard int, err error) {
	sc := w.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.breakShard(shard, err)
}

func (sc *Scanner) breakShard(shard int, err error) {
	sc.broken[shard] = err
	s := sc.o.Index.Shard(shard)
	if s.Records == 0 {
		return
	}
	for p := sc.pieces.Of(s.First); p < sc.pieces.Len() && sc.pieces.Starts[p] < s.First+s.Records; p++ {
		if e := sc.slots.at(p); e != nil {
			e.mem.Live.Add(-e.liveBytes())
			sc.slots.set(p, nil)
		}
	}
}

// Failed ends loads with an error.
func (w decoding) Failed(loads []decode.Load, err error) {
	sc := w.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, l := range loads {
		ld := l.(*load)
		ld.err = err
		sc.finishLocked(ld)
	}
}

// Shrink frees segments to make room for what decoders hold.
func (w decoding) Shrink() {
	w.sc.mu.Lock()
	defer w.sc.mu.Unlock()
	w.sc.cache.shrink()
}

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
