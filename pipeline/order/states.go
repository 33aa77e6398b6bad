package order

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// states are what a shuffle stores of an epoch to make every position cheap to reach.
type states interface {
	whole() bool
	prepare() []func(stop func() bool)
	storedBytes() uint64
	store(dst []byte) []byte
	restore(stored []byte) error
}

// maxParts bounds the number of parts into which Prepare cuts its work: enough to keep all cores
// busy to its end.
const maxParts = 256

// Stride returns the maximum number of positions that are replayed to reach a position of G, if all
// states are kept.
func (e *Epoch) Stride() uint64 { return e.stride }

// Prepare returns the work of computing all states of an epoch, about 10 ns per record in total, in
// parts that may run concurrently, each once. It returns nil if nothing is left to do. The states
// are stored when the last part has ended. Parts poll stop; once a part gets true, it ends, and no
// states are stored.
func (e *Epoch) Prepare() []func(stop func() bool) {
	states := e.arrangement().states
	if states == nil {
		return nil
	}
	return states.prepare()
}

// Prepared reports whether all states of the epoch are kept.
func (e *Epoch) Prepared() bool {
	states := e.arrangement().states
	return states == nil || states.whole()
}

// StoredStatesBytes returns the number of bytes that StoreStates appends; 0 if this kind of epoch
// has no states.
func (e *Epoch) StoredStatesBytes() uint64 {
	states := e.arrangement().states
	if states == nil {
		return 0
	}
	return states.storedBytes()
}

// StoreStates appends the states of the epoch to dst. RestoreStates reads them, in an epoch made
// from the same order, number and starts. It appends nothing unless all states are kept. The format
// is:
//
//	position of the first state   u64
//	for each multiple of that position below T:
//	    all slots, as ranks of records   u32 each if T fits, else u64
//
// The states of a mixture's epoch are those of its held sources' epochs, one after another.
func (e *Epoch) StoreStates(dst []byte) []byte {
	states := e.arrangement().states
	if states == nil {
		return dst
	}
	return states.store(dst)
}

// RestoreStates loads what StoreStates appended. Bytes that can't be states of this epoch are an
// error; then nothing changes, except in an epoch of a mixture, which may have loaded the states of
// some sources. It can't detect states of another epoch: the caller must know where the bytes come
// from.
func (e *Epoch) RestoreStates(stored []byte) error {
	states := e.arrangement().states
	if states == nil {
		return errors.New("order: stored states of a shuffle that has none")
	}
	return states.restore(stored)
}

// count returns the number of kept states of a whole epoch: those at multiples of the spacing below
// T, without position 0.
func (r *reservoirs[S]) count() uint64 {
	if r.total == 0 {
		return 0
	}
	return (r.total - 1) / r.spacing
}

// whole reports whether all of them are kept.
func (r *reservoirs[S]) whole() bool {
	for i := range r.count() {
		if r.kept[i+1].Load() == nil {
			return false
		}
	}
	return true
}

func (r *reservoirs[S]) prepare() []func(stop func() bool) {
	if r.whole() {
		return nil
	}
	p := &preparation[S]{shared: r, slots: make([]S, r.count()*r.slots)}
	lanes := len(r.layout.lanes)
	n := min(lanes, maxParts)
	p.left.Store(int64(n))
	parts := make([]func(stop func() bool), 0, n)
	base := uint64(0)
	for i := range n {
		first, end, at := lanes*i/n, lanes*(i+1)/n, base
		for lane := first; lane < end; lane++ {
			base += min(r.layout.window, r.layout.lanes[lane].records)
		}
		parts = append(parts, func(stop func() bool) {
			if p.run(first, end, at, stop) && p.left.Add(-1) == 0 {
				p.publish()
			}
		})
	}
	return parts
}

// preparation computes all states, lane by lane: lanes are independent of each other.
type preparation[S slot] struct {
	shared *reservoirs[S]
	slots  []S          // of all states, one after the other
	left   atomic.Int64 // parts that have not finished
}

// run computes the slots of the lanes [first, end), which begin at base in each state. It returns
// false if it was stopped.
func (p *preparation[S]) run(first, end int, base uint64, stop func() bool) bool {
	r := p.shared
	w := reservoirWalker[S]{shared: r, slots: make([]S, min(r.layout.window, r.total))}
	for i := first; i < end; i++ {
		l := w.begin(i, 0)
		size := l.live
		for n := range r.count() {
			if stop() {
				return false
			}
			w.advanceLane(&l, r.layout.lanes[i].key+r.layout.laneSteps(i, (n+1)*r.spacing)*gamma)
			copy(p.slots[n*r.slots+base:], w.slots[:size])
		}
		base += size
	}
	return true
}

func (p *preparation[S]) publish() { p.shared.keepAll(p.slots) }

// keepAll stores all states, whose slots are concatenated.
func (r *reservoirs[S]) keepAll(slots []S) {
	for i := range r.count() {
		r.kept[i+1].CompareAndSwap(nil, &reservoirState[S]{slots: slots[i*r.slots:][:r.slots:r.slots]})
	}
}

// slotBytes is the size of a stored slot.
func (r *reservoirs[S]) slotBytes() uint64 {
	if ^S(0)>>16>>16 == 0 {
		return 4
	}
	return 8
}

func (r *reservoirs[S]) storedBytes() uint64 {
	if r.count() == 0 {
		return 0
	}
	return 8 + r.count()*r.slots*r.slotBytes()
}

func (r *reservoirs[S]) store(dst []byte) []byte {
	if r.count() == 0 || !r.whole() {
		return dst
	}
	dst = slices.Grow(dst, int(r.storedBytes()))
	dst = binary.LittleEndian.AppendUint64(dst, r.spacing)
	for i := range r.count() {
		for _, s := range r.kept[i+1].Load().slots {
			if r.slotBytes() == 4 {
				dst = binary.LittleEndian.AppendUint32(dst, uint32(s))
			} else {
				dst = binary.LittleEndian.AppendUint64(dst, uint64(s))
			}
		}
	}
	return dst
}

func (r *reservoirs[S]) restore(stored []byte) error {
	if uint64(len(stored)) != r.storedBytes() || len(stored) == 0 {
		return fmt.Errorf("order: the states of this epoch take %d bytes, not %d", r.storedBytes(), len(stored))
	}
	if spacing := binary.LittleEndian.Uint64(stored); spacing != r.spacing {
		return fmt.Errorf("order: the states of this epoch lie %d positions apart, not %d", r.spacing, spacing)
	}
	stored = stored[8:]
	slots := make([]S, r.count()*r.slots)
	for i := range slots {
		var record uint64
		if r.slotBytes() == 4 {
			record = uint64(binary.LittleEndian.Uint32(stored[4*i:]))
		} else {
			record = binary.LittleEndian.Uint64(stored[8*i:])
		}
		if record >= r.total {
			return fmt.Errorf("order: record %d in a stored state of %d records", record, r.total)
		}
		slots[i] = S(record)
	}
	r.keepAll(slots)
	return nil
}

// layout describes how S is cut into groups and lanes, and which lane each position of G comes from
// (ORDER.md, Shuffles).
type layout struct {
	chunks *chunks
	batch  uint64 // the order's batch: number of consecutive positions of a group
	groups []group
	lanes  []lane
	window uint64 // R: the number of records of a lane that are shuffled among themselves
}

// group is a set of lanes that is read together.
type group struct {
	first   uint64 // its first lane
	lanes   uint64 // number of lanes, M
	records uint64
	turnKey uint64
}

// lane is a slice of S.
type lane struct {
	key     uint64
	place   uint64 // position in S
	records uint64
}

type layoutOptions struct {
	seed, epoch         uint64
	size                uint64 // shuffle size, over all lanes
	lanes, groups, step uint64 // step: the order's batch
}

func newLayout(o layoutOptions, total uint64, c *chunks) *layout {
	if o.size >= total {
		o.lanes, o.groups = 1, 1
	}
	if o.groups == 1 {
		o.step = max(total, 1) // one group: its positions are all positions
	}
	l := &layout{
		chunks: c, batch: o.step,
		groups: make([]group, o.groups), lanes: make([]lane, o.lanes),
		window: max(1, o.size/o.lanes+min(1, o.size%o.lanes)),
	}
	place := uint64(0)
	perGroup := o.lanes / o.groups
	for g := range l.groups {
		l.groups[g] = group{
			first: uint64(g) * perGroup, lanes: perGroup,
			records: l.passed(uint64(g), total),
			turnKey: key("turn", o.seed, o.epoch, uint64(g)),
		}
		place = l.cut(&l.groups[g], place, o)
	}
	return l
}

// cut cuts the records of a group, which begin at place, into its lanes, and returns the position
// after them.
func (l *layout) cut(g *group, place uint64, o layoutOptions) uint64 {
	base, extra := g.records/g.lanes, g.records%g.lanes
	turn := g.turn(base)
	for m := range g.lanes {
		n := base
		if (m+g.lanes-turn)%g.lanes < extra {
			n++
		}
		number := g.first + m
		l.lanes[number] = lane{key: key("lane", o.seed, o.epoch, number), place: place, records: n}
		place += n
	}
	return place
}

// turn returns the lane of the group (0 … M-1) with which round r begins.
func (g *group) turn(r uint64) uint64 {
	if g.lanes == 1 {
		return 0
	}
	return below(g.turnKey, r, g.lanes)
}

// passed returns the number of positions below p that belong to group g.
func (l *layout) passed(g, p uint64) uint64 {
	if len(l.groups) == 1 {
		return p
	}
	cycle := l.batch * uint64(len(l.groups)) // at most 2^32 · 2^16
	rest := p % cycle
	return p/cycle*l.batch + min(l.batch, rest-min(rest, g*l.batch))
}

// steps calls visit with each lane's number and the number of its records below position p of G.
func (l *layout) steps(p uint64, visit func(lane int, steps uint64)) {
	for i := range l.groups {
		g := &l.groups[i]
		q := l.passed(uint64(i), p)
		round, rest := q/g.lanes, q%g.lanes
		turn := g.turn(round)
		for m := range g.lanes {
			n := round
			if (m+g.lanes-turn)%g.lanes < rest {
				n++
			}
			visit(int(g.first+m), n)
		}
	}
}

// laneSteps returns the number that steps passes to visit for one lane.
func (l *layout) laneSteps(lane int, p uint64) uint64 {
	i := uint64(lane) / l.groups[0].lanes // all groups have the same number of lanes
	g := &l.groups[i]
	q := l.passed(i, p)
	round, rest := q/g.lanes, q%g.lanes
	if (uint64(lane)-g.first+g.lanes-g.turn(round))%g.lanes < rest {
		return round + 1
	}
	return round
}

// rota yields the lanes of successive positions.
type rota struct {
	layout *layout
	group  int
	left   uint64 // positions until the next group's turn
	rounds []round
}

// round is a group's position in its current round.
type round struct {
	number uint64
	lane   uint64 // next lane of the group
	left   uint64 // lanes left in the round
}

// seek moves to position p.
func (r *rota) seek(p uint64) {
	groups := r.layout.groups
	if r.rounds == nil {
		r.rounds = make([]round, len(groups))
	}
	for i := range groups {
		g := &groups[i]
		q := r.layout.passed(uint64(i), p)
		number, rest := q/g.lanes, q%g.lanes
		r.rounds[i] = round{number: number, lane: (rest + g.turn(number)) % g.lanes, left: g.lanes - rest}
	}
	r.group = int(p / r.layout.batch % uint64(len(groups)))
	r.left = r.layout.batch - p%r.layout.batch
}

// next fills dst with the lanes of the next positions.
func (r *rota) next(dst []uint32) {
	for len(dst) > 0 {
		if r.left == 0 {
			if r.group++; r.group == len(r.rounds) {
				r.group = 0
			}
			r.left = r.layout.batch
		}
		n := min(r.left, uint64(len(dst)))
		r.rounds[r.group].next(&r.layout.groups[r.group], dst[:n])
		r.left -= n
		dst = dst[n:]
	}
}

func (r *round) next(g *group, dst []uint32) {
	number, lane, left := r.number, r.lane, r.left
	for i := range dst {
		dst[i] = uint32(g.first + lane)
		if lane++; lane == g.lanes {
			lane = 0
		}
		if left--; left == 0 {
			number++
			lane, left = g.turn(number), g.lanes
		}
	}
	r.number, r.lane, r.left = number, lane, left
}
