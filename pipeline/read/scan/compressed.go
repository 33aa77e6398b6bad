package scan

import (
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
)

// owner is the decode.Owner of a scanner: decoders and the spool call it without their locks. They
// name loads by their pieces, as package mapped does: a piece that is on its way has one load.
type owner struct{ sc *Scanner }

var _ decode.Owner = owner{}

// loadOf returns the load that decoders or the spool know as l. It is called with mu held.
func (sc *Scanner) loadOf(l *decode.Load) *load { return sc.loads[l.Piece] }

// Room allocates memory for a load that a decoder has reached.
func (w owner) Room(l *decode.Load) bool {
	sc := w.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	ld := sc.loadOf(l)
	if !sc.alloc(ld, ld.Urgency()) {
		sc.finishLocked(ld)
		return false
	}
	return true
}

// Passing makes a load of the piece that comes next in the shard, if a reader will need it soon or
// all pieces fit into memory, it is not in memory or on its way, and there is memory for it.
func (w owner) Passing(piece int) *decode.Load {
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
	ld := sc.newLoad(piece, shard, l)
	ld.wanted = lentBefore
	if !sc.alloc(ld, budget.Opportunistic) {
		return nil
	}
	sc.loads[piece] = ld
	return &ld.Load
}

// Next returns the piece at which a decoder continues in a scan that sweeps: the next one that is
// wanted and not in memory.
func (w owner) Next(shard, piece int) int {
	sc := w.sc
	if !sc.sweeps {
		return -1
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.nextWanted(shard, piece)
}

// nextWanted returns the first piece of the shard, from piece on, that is wanted and neither in
// memory nor on its way; -1 for none. It is called with mu held.
func (sc *Scanner) nextWanted(shard, piece int) int {
	s := sc.o.Index.Shard(shard)
	for ; piece < sc.pieces.Len() && sc.pieces.Starts[piece] < s.First+s.Records; piece++ {
		if sc.wanted.Wanted(piece) && !sc.holds(piece) && sc.loads[piece] == nil {
			return piece
		}
	}
	return -1
}

// Came completes a load whose bytes have arrived.
func (w owner) Came(l *decode.Load) {
	sc := w.sc
	sc.mu.Lock()
	ld := sc.loadOf(l)
	if sc.o.Verifier != nil { // which takes long
		sc.mu.Unlock()
		sc.checkAndFinish(ld)
		return
	}
	defer sc.mu.Unlock()
	sc.addNewline(ld)
	sc.finishLocked(ld)
}

// breakShard makes a checksum error the result of every later read of the shard, because what was
// read before can't be trusted either.
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

// Failed ends loads of a shard with an error.
func (w owner) Failed(shard int, loads []*decode.Load, err error) {
	sc := w.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if _, ok := errors.AsType[*format.CorruptError](err); ok {
		sc.breakShard(shard, err)
	}
	sc.fail(loads, err)
}

func (sc *Scanner) fail(loads []*decode.Load, err error) {
	for _, l := range loads {
		ld := sc.loadOf(l)
		ld.err = err
		sc.finishLocked(ld)
	}
}

// Shrink frees segments to make room for what decoders hold.
func (w owner) Shrink() {
	w.sc.mu.Lock()
	defer w.sc.mu.Unlock()
	w.sc.cache.shrink()
}

// assignSpool has a load read from the spool as soon as its bytes are there, or decoded if the
// spool is far from it. It returns false if there is no room to read ahead. It is called with mu
// held.
func (sc *Scanner) assignSpool(ld *load, u budget.Urgency) bool {
	asked := sc.spool.Ask(&ld.Load, u)
	sc.cache.shrink() // for the tables of a shard that was admitted
	switch asked {
	case decode.Refused:
		return false
	case decode.Waits:
		return true
	case decode.Aside:
		return sc.decoders.Assign(&ld.Load, u) != nil
	}
	if !sc.alloc(ld, u) {
		sc.newsOfSpool(sc.spool.Leave(&ld.Load))
		return ld.err != budget.ErrNoRoom
	}
	sc.readSpooled(ld)
	return true
}

// News applies what has happened to loads.
func (w owner) News(n decode.News) {
	w.sc.mu.Lock()
	defer w.sc.mu.Unlock()
	w.sc.newsOfSpool(n)
}

// newsOfSpool is News with mu held.
func (sc *Scanner) newsOfSpool(n decode.News) {
	for _, l := range n.Without {
		sc.decoders.Assign(l, budget.Demand)
	}
	sc.cache.shrink()
	for _, l := range n.There {
		ld := sc.loadOf(l)
		if !sc.alloc(ld, ld.Urgency()) {
			sc.finishLocked(ld)
			sc.newsOfSpool(sc.spool.Leave(l))
			continue
		}
		sc.readSpooled(ld)
	}
}

// readSpooled reads a load from the spool, to memory that it already has.
func (sc *Scanner) readSpooled(ld *load) {
	ld.pending.Store(1)
	ld.stage.Store(isQueued)
	sc.running.Add(1)
	sc.spool.Read(&ld.Load, ld.begin, func(err error) {
		if err != nil {
			ld.failed.CompareAndSwap(nil, &err)
		}
		ld.pending.Store(0)
		sc.arrived(ld)
	})
}

// WantedSoon reads only atomic counts.
func (w owner) WantedSoon(shard int, missing bool) bool {
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
	for _, other := range sc.spool.Lost(&ld.Load, why) {
		sc.bringAgain(sc.loadOf(other))
	}
	ld.seg.Pins.Unpin()
	ld.seg, ld.Memory = nil, nil
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
	case ld.damaged || sc.spool.Avoids(ld.Shard):
		sc.decoders.Assign(&ld.Load, budget.Demand)
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
	sc.fail(left, errClosed)
	return err
}
