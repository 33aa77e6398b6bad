package order

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
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

// blocks is the shuffle `block` of an epoch: the state that its cursors share. A cursor permutes a
// block when it first needs a record of it, so reading from any position costs only the blocks that
// are read.
type blocks[S slot] struct {
	layout *layout
	slots  uint64
}

func newBlocks[S slot](l *layout) *blocks[S] {
	b := &blocks[S]{layout: l}
	for i := range l.lanes {
		b.slots += min(l.window, l.lanes[i].records)
	}
	return b
}

func (b *blocks[S]) walker() walker {
	w := &blockWalker[S]{shared: b, rota: rota{layout: b.layout}}
	w.slots = make([]S, b.slots)
	w.lanes = make([]blockLane[S], len(b.layout.lanes))
	base := uint64(0)
	for i := range w.lanes {
		size := min(b.layout.window, b.layout.lanes[i].records)
		w.lanes[i].block = w.slots[base : base : base+size]
		base += size
	}
	w.rota.seek(0)
	return w
}

// blockWalker is a cursor's own state.
type blockWalker[S slot] struct {
	shared *blocks[S]
	lanes  []blockLane[S]
	slots  []S
	rota   rota
	turn   [lanesAtOnce]uint32
}

// blockLane is the current block of a lane, permuted.
type blockLane[S slot] struct {
	next  uint64 // index among the lane's records
	begin uint64 // index among the lane's records of block[0]
	block []S
	after run // the records that follow the block in the lane
}

func (w *blockWalker[S]) next(_ uint64, dst []uint64) {
	for len(dst) > 0 {
		n := min(len(dst), lanesAtOnce)
		turn := w.turn[:n]
		w.rota.next(turn)
		for i, number := range turn {
			l := &w.lanes[number]
			at := l.next - l.begin // wraps below begin
			if at >= uint64(len(l.block)) {
				w.load(int(number), l)
				at = l.next - l.begin
			}
			dst[i] = uint64(l.block[at])
			l.next++
		}
		dst = dst[n:]
	}
}

// load permutes the block that contains the lane's next record.
func (w *blockWalker[S]) load(number int, l *blockLane[S]) {
	lane := &w.shared.layout.lanes[number]
	begin := l.next - l.next%w.shared.layout.window
	if behind := l.begin + uint64(len(l.block)); begin != behind || behind == 0 {
		l.after = w.shared.layout.chunks.at(lane.place+begin, lane.records-begin)
	}
	l.begin = begin
	l.block = l.block[:min(w.shared.layout.window, lane.records-begin)]
	take(w.shared.layout.chunks, &l.after, l.block)
	permute(l.block, lane.key, begin)
}

func (w *blockWalker[S]) seek(_, to uint64) {
	w.shared.layout.steps(to, func(i int, steps uint64) { w.lanes[i].next = steps })
	w.rota.seek(to)
}

// feistelRounds is the number of rounds (ORDER.md, Shuffles).
const feistelRounds = 6

// full is the shuffle `full`: a Feistel network over the smallest even number of bits that holds
// T-1, applied repeatedly until the result is below T. It has no state, so any position costs the
// same.
type full struct {
	total uint64
	half  uint
	mask  uint64
	keys  [feistelRounds]uint64
}

func newFull(seed, epoch, total uint64) *full {
	width := 2
	if total > 0 {
		width = max(2, bits.Len64(total-1))
	}
	f := &full{total: total, half: uint(width+1) / 2}
	f.mask = 1<<f.half - 1
	for r := range f.keys {
		f.keys[r] = key("full", seed, epoch, uint64(r))
	}
	return f
}

// record returns perm(x).
func (f *full) record(x uint64) uint64 {
	for {
		l, r := x>>f.half, x&f.mask
		for _, k := range f.keys {
			l, r = r, l^(mix(k+r)&f.mask)
		}
		if x = l<<f.half | r; x < f.total {
			return x
		}
	}
}

func (f *full) next(p uint64, dst []uint64) {
	for i := range dst {
		dst[i] = f.record(p + uint64(i))
	}
}

func (f *full) seek(_, _ uint64) {}

// straight is the shuffle `none`.
type straight struct{}

func (straight) next(p uint64, dst []uint64) {
	for i := range dst {
		dst[i] = p + uint64(i)
	}
}

func (straight) seek(_, _ uint64) {}

// gamma is the distance between the states of two successive draws.
const gamma = 0x9E3779B97F4A7C15

// key returns the key that ORDER.md defines under "Random numbers".
func key(domain string, seed, epoch, index uint64) uint64 {
	text := make([]byte, 0, 96)
	text = append(text, "lsiofs/1 "...)
	text = append(text, domain...)
	for _, n := range [...]uint64{seed, epoch, index} {
		text = append(text, ' ')
		text = strconv.AppendUint(text, n, 10)
	}
	sum := sha256.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:])
}

// mix is SplitMix64's finalizer.
func mix(z uint64) uint64 {
	z ^= z >> 30
	z *= 0xBF58476D1CE4E5B9
	z ^= z >> 27
	z *= 0x94D049BB133111EB
	return z ^ z>>31
}

// draw returns the i-th draw of a key.
func draw(k, i uint64) uint64 { return mix(k + (i+1)*gamma) }

// below returns the i-th draw of a key, scaled to 0 … n-1.
func below(k, i, n uint64) uint64 {
	high, _ := bits.Mul64(draw(k, i), n)
	return high
}

// permute shuffles a with the draws base, base+1, … of k.
func permute[E any](a []E, k, base uint64) {
	i := base
	for j := len(a) - 1; j >= 1; j-- {
		other := below(k, i, uint64(j)+1)
		a[j], a[other] = a[other], a[j]
		i++
	}
}

// ID returns the shard part of a record's identity: the first 8 bytes of SHA-256 over `lsiofs/1
// shard <path>`, as a big-endian number. A record's ID is this number followed by the record's
// ordinal in the shard, each as 8 bytes big-endian.
func ID(path string) uint64 {
	sum := sha256.Sum256([]byte("lsiofs/1 shard " + path))
	return binary.BigEndian.Uint64(sum[:])
}
