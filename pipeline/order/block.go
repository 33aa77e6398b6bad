package order

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
