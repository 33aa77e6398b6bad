package order

import (
	"math/bits"
	"sync/atomic"
)

const (
	// spacingPositions is the minimum distance between two kept states. Replaying that many steps
	// takes about 3 ms.
	spacingPositions = 1 << 18
	// spacingPerSlot bounds the memory of all states of an epoch: one slot per spacingPerSlot
	// records of the dataset. With the default size of 16384 the spacing is exactly
	// spacingPositions.
	spacingPerSlot = 16
	// lanesAtOnce is the number of positions that the rota yields at a time.
	lanesAtOnce = 256
)

// reservoirs is the shuffle `reservoir` of an epoch: the state that its cursors share.
type reservoirs[S slot] struct {
	layout  *layout
	total   uint64
	slots   uint64 // of all lanes together
	spacing uint64
	kept    []atomic.Pointer[reservoirState[S]] // by position / spacing
}

// reservoirState is the state of all lanes at one position: their slots. Everything else follows
// from the position. A kept state is never modified.
type reservoirState[S slot] struct{ slots []S }

// reservoirLane is the state of a lane; its slots are slots[base:base+live].
type reservoirLane struct {
	counter uint64 // the lane's key + steps·gamma
	live    uint64
	base    uint64
	source  run
}

func newReservoirs[S slot](l *layout, total uint64) *reservoirs[S] {
	r := &reservoirs[S]{layout: l, total: total}
	for i := range l.lanes {
		r.slots += min(l.window, l.lanes[i].records)
	}
	// Resuming a lane from a state costs about as much as 16 slots.
	r.spacing = max(spacingPositions, spacingPerSlot*(r.slots+16*uint64(len(l.lanes))))
	r.kept = make([]atomic.Pointer[reservoirState[S]], total/r.spacing+1)
	return r
}

func (r *reservoirs[S]) walker() walker {
	w := &reservoirWalker[S]{shared: r, rota: rota{layout: r.layout}}
	w.slots = make([]S, r.slots)
	w.lanes = make([]reservoirLane, len(r.layout.lanes))
	w.reset()
	w.rota.seek(0)
	return w
}

// reservoirWalker is a cursor's own state.
type reservoirWalker[S slot] struct {
	shared *reservoirs[S]
	lanes  []reservoirLane
	slots  []S
	rota   rota
	turn   [lanesAtOnce]uint32
}

// reset fills the lanes with their first records.
func (w *reservoirWalker[S]) reset() {
	base := uint64(0)
	for i := range w.lanes {
		w.lanes[i] = w.begin(i, base)
		base += w.lanes[i].live
	}
}

// begin fills the slots from base on with the first records of lane i.
func (w *reservoirWalker[S]) begin(i int, base uint64) reservoirLane {
	chunks, lane := w.shared.layout.chunks, &w.shared.layout.lanes[i]
	live := min(w.shared.layout.window, lane.records)
	l := reservoirLane{counter: lane.key, live: live, base: base, source: chunks.at(lane.place, lane.records)}
	take(chunks, &l.source, w.slots[base:base+live])
	return l
}

// restore moves to position p, whose state is kept.
func (w *reservoirWalker[S]) restore(p uint64, state *reservoirState[S]) {
	copy(w.slots, state.slots)
	layout, base := w.shared.layout, uint64(0)
	layout.steps(p, func(i int, steps uint64) {
		lane := &layout.lanes[i]
		size := min(layout.window, lane.records)
		taken := min(lane.records, size+steps)
		w.lanes[i] = reservoirLane{
			counter: lane.key + steps*gamma, live: min(size, lane.records-steps), base: base,
			source: layout.chunks.at(lane.place+taken, lane.records-taken),
		}
		base += size
	})
}

// step emits a lane's next record.
func (w *reservoirWalker[S]) step(l *reservoirLane) uint64 {
	l.counter += gamma
	j, _ := bits.Mul64(mix(l.counter), l.live)
	at := &w.slots[l.base+j]
	record := *at
	if l.source.left == 0 && !w.shared.layout.chunks.refill(&l.source) {
		l.live--
		*at = w.slots[l.base+l.live]
		return uint64(record)
	}
	*at = S(l.source.first)
	l.source.first++
	l.source.left--
	return uint64(record)
}

func (w *reservoirWalker[S]) next(p uint64, dst []uint64) {
	for len(dst) > 0 {
		w.keep(p)
		n := min(uint64(len(dst)), lanesAtOnce, w.shared.spacing-p%w.shared.spacing)
		turn := w.turn[:n]
		w.rota.next(turn)
		for i, lane := range turn {
			dst[i] = w.step(&w.lanes[lane])
		}
		dst = dst[n:]
		p += n
	}
}

// keep stores a copy of the state at p, if states are kept at p and this one is missing.
func (w *reservoirWalker[S]) keep(p uint64) {
	if p%w.shared.spacing != 0 || p == 0 {
		return
	}
	at := &w.shared.kept[p/w.shared.spacing]
	if at.Load() != nil {
		return
	}
	at.CompareAndSwap(nil, &reservoirState[S]{slots: append([]S(nil), w.slots...)})
}

func (w *reservoirWalker[S]) seek(from, to uint64) {
	if from < to && to-from <= 4*uint64(len(w.lanes)) {
		w.skip(from, to)
		return
	}
	if best := w.nearest(from, to); best != from {
		if state := w.shared.kept[best/w.shared.spacing].Load(); state != nil && best != 0 {
			w.restore(best, state)
		} else {
			w.reset()
		}
		from = best
	}
	for from < to {
		stop := min(to, (from/w.shared.spacing+1)*w.shared.spacing)
		w.advance(from, stop)
		from = stop
		w.keep(from)
	}
	w.rota.seek(to)
}

// skip moves a few positions ahead without touching every lane.
func (w *reservoirWalker[S]) skip(from, to uint64) {
	var dropped [lanesAtOnce]uint64
	for from < to {
		n := min(to-from, lanesAtOnce)
		w.next(from, dropped[:n])
		from += n
	}
}

// nearest returns the position from which to is reached in the fewest steps: from, that of a kept
// state, or 0.
func (w *reservoirWalker[S]) nearest(from, to uint64) uint64 {
	for i := to / w.shared.spacing; i > 0; i-- {
		p := i * w.shared.spacing
		if from <= to && from >= p {
			return from
		}
		if w.shared.kept[i].Load() != nil {
			return p
		}
	}
	if from <= to {
		return from
	}
	return 0
}

// advance takes the steps from one position to another, lane by lane, which keeps a lane's slots in
// the CPU cache.
func (w *reservoirWalker[S]) advance(from, to uint64) {
	w.shared.layout.steps(to, func(i int, steps uint64) {
		l := &w.lanes[i]
		w.advanceLane(l, w.shared.layout.lanes[i].key+steps*gamma)
	})
}

// advanceLane takes a lane's steps until its counter is end.
func (w *reservoirWalker[S]) advanceLane(l *reservoirLane, end uint64) {
	for l.counter != end {
		w.step(l)
	}
}
