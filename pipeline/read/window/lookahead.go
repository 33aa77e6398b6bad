package window

import (
	"math"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	// firstReachBytes is how far to look ahead when a reader begins to read on. It doubles whenever
	// a quarter of it has been read, up to Plan.Reach.
	firstReachBytes = 16 << 20
	// lookRecords limits how many records are looked up in one call, about a millisecond.
	lookRecords = 64 << 10
	// mostWants limits what is planned for all readers, at about 150 bytes each including what a
	// storage keeps of it.
	mostWants = 16 << 10

	// exactRecords is how many records of a reader are announced beyond what it has submitted if
	// Plan.Exact is set, unless mostExactWants limits it. The list is sent again after each eighth
	// of it. The reader waits meanwhile, so at first a call announces exactStep records, or
	// exactTimes as many as it submits if that is more.
	exactRecords = 4096
	exactStep    = exactRecords / exactParts
	exactParts   = 8
	exactTimes   = 3
	// mostExactWants is mostWants for exact plans: enough for 16 readers.
	mostExactWants = 64 << 10
)

// Lookahead goes through a sequence ahead of its reader, and tells the storage (storage.Hints) which
// chunks or records will be read, soonest first. It is not for concurrent use. All methods but
// Submitting and Announce accept a nil Lookahead.
//
//	          at          planAt                             to
//	──────────┼─────────────┼─────────────────────────────────┼────────
//	 passed   │◄─ a quarter ┘   ▓   ▓▓  ▓     ▓  ▓▓    ▓  ▓   │ not looked up
//	          │                 └ a chunk, at its first record │
//
// While the reader is before planAt, a call costs two comparisons. When it reaches planAt, the
// storage gets the new plan. So each record is looked up once, and each chunk is in about four
// plans.
//
// If Plan.Exact is set, the reader's place is what it has submitted (Submitting, Announce);
// otherwise it is what it asks for (Move).
type Lookahead struct {
	plan   *Plan
	seq    chunkmap.Sequence
	id     uint64
	part   chunkmap.Part // whose records the sequence has
	passed *passed       // of that part; nil if nothing is counted

	moved          bool
	closed         bool
	at, planAt, to uint64
	asked          uint64 // after the furthest record that was asked for
	atBytes        int64  // of the sequence's records before at
	toBytes        int64
	reach          int64 // of the last plan
	told           bool  // the storage has a plan of the reader
	since          time.Time
	sinceBytes     int64    // atBytes at that time
	bytesPerSecond float64  // that the reader reads
	named          queue    // not reached yet, in order
	seen           []uint64 // one bit per piece: it was named
	open           map[int]opened
	submitted      uint64          // records of the last Submitting
	epoch          uint64          // of the sequence
	blocks         []storage.Block // scratch
	numbers        []uint64
	extents        []catalog.Extent
}

// named is a range that the sequence needs.
type named struct {
	k      uint64 // the first record that needs it
	bytes  int64  // of the sequence's records before that
	object storage.Object
	off, n int64
	piece  int // of a chunk
}

// opened is a piece that was planned and is not done.
type opened struct {
	k     uint64 // its first record
	until uint32 // Plan.passed when all of its records have been delivered
	own   uint32 // delivered by this reader
}

// NewWalker returns a Lookahead for a reader of a sequence of records of the part of Places. It is
// nil if p is.
func (p *Plan) NewWalker(seq chunkmap.Sequence) *Lookahead {
	if p == nil {
		return nil
	}
	var part chunkmap.Part
	if p.Places != nil {
		part = p.Places.Part
	}
	return p.NewPhaseWalker(seq, Subset{Number: p.Phase, Part: part})
}

// Subset is the set of records that an epoch has, with its number.
type Subset = chunkmap.Subset

// NewPhaseWalker is NewWalker for a sequence of records of another phase.
func (p *Plan) NewPhaseWalker(seq chunkmap.Sequence, phase Subset) *Lookahead {
	if p == nil {
		return nil
	}
	p.readers.Add(1)
	w := &Lookahead{plan: p, seq: seq, id: storage.NewReaderID(), part: phase.Part, epoch: chunkmap.EpochOf(seq)}
	if p.counts() {
		w.passed = p.enter(phase.Number)
	}
	return w
}

// Reached returns the record up to which a reader at record k may read ahead: what follows has not
// been planned.
func (w *Lookahead) Reached(k uint64) uint64 {
	if w == nil || w.plan.Exact {
		return math.MaxUint64
	}
	return max(w.to, k)
}

// Reach returns how far the reader looks ahead, or otherwise if nothing is planned.
func (w *Lookahead) Reach(otherwise int64) int64 {
	if w == nil || w.plan.Exact {
		return otherwise
	}
	return w.plan.Reach(w.bytesPerSecond)
}

// Move is called for each call for records k … k+n-1: it plans what comes after k if a quarter of
// the plan has been read.
func (w *Lookahead) Move(k uint64, n int) {
	if w == nil || w.plan.Exact || k >= w.at && k < w.planAt || w.closed {
		return
	}
	if near := w.plan.near(); !w.moved || k+near < w.at || k > max(w.to, w.asked+near) {
		w.jump(k, n)
		return
	}
	if k <= w.at {
		return // replies are requested out of order
	}
	w.asked = max(w.asked, k+uint64(n))
	w.pass(k)
	w.look(w.grow(), w.seq.Len())
	w.tell()
}

// Submitting is called when the reader is about to submit records k … end-1, if Plan.Exact is set. A
// call that does not continue the one before is a jump.
func (w *Lookahead) Submitting(k, end uint64) {
	if w.closed {
		return
	}
	w.submitted = end - k
	if w.moved && k == w.at {
		w.pass(end)
		return
	}
	w.forget()
	w.moved = true
	w.at, w.to, w.planAt = end, end, end
	w.atBytes, w.toBytes = 0, 0
}

// Announce announces what comes after the records that have just been submitted.
func (w *Lookahead) Announce() {
	if w.closed || w.at < w.planAt {
		return
	}
	w.look(math.MaxInt64, min(w.at+exactRecords, w.to+max(exactTimes*w.submitted, exactStep), w.seq.Len()))
	w.tell()
	switch {
	case w.to == w.seq.Len():
		w.planAt = w.at + exactStep
	case w.to >= w.at+exactRecords, w.named.len() >= w.plan.mostWants():
		w.planAt = w.at + max((w.to-w.at)/exactParts, 1)
	default:
		w.planAt = w.at + 1 // it still grows
	}
}

// Promote sends the plan again from record k on, because a reader has been waiting for that record:
// it is due now. Exact plans have no due times, so it does nothing for them.
func (w *Lookahead) Promote(k uint64) {
	if w == nil || w.plan.Exact || !w.told || k < w.at || k > w.to {
		return
	}
	w.pass(k)
	w.tell()
}

// Close withdraws the reader's plan. It is idempotent.
func (w *Lookahead) Close() {
	if w == nil || w.closed {
		return
	}
	w.closed = true
	w.forget()
	if w.passed != nil {
		w.plan.leave(w.passed)
	}
	w.plan.readers.Add(-1)
}

// forget withdraws everything that was announced.
func (w *Lookahead) forget() {
	if !w.told {
		return
	}
	w.told = false
	if w.to == w.seq.Len() && w.plan.counts() {
		w.count(w.at, w.to) // the rest of the sequence is delivered, or is no longer needed here
	} else {
		for piece, o := range w.open {
			w.takeBack(piece, o.own)
		}
	}
	clear(w.open)
	clear(w.seen)
	w.named.pop(w.named.len())
	w.plan.Hints.Drop(w.id)
}

// jump begins elsewhere. Nothing is read ahead there until the reader reads on, because a sampling
// reader needs no more than it asks for. If chunks go to a cache, those of the requested records
// do.
func (w *Lookahead) jump(k uint64, n int) {
	w.forget()
	w.moved = true
	w.asked = min(k+uint64(n), w.seq.Len())
	w.at, w.to = k, k
	w.atBytes, w.toBytes, w.sinceBytes = 0, 0, 0
	w.reach, w.since = 0, time.Time{}
	if w.plan.counts() {
		w.look(w.plan.Reach(0), w.asked)
		w.tell()
	}
	w.planAt = k + 1
}

// pass moves to record k, which was looked up.
func (w *Lookahead) pass(k uint64) {
	if k > w.to { // it has read on where nothing was planned
		w.to, w.toBytes = k, w.atBytes
	}
	if w.plan.counts() {
		w.count(w.at, k)
	}
	n, named := 0, w.named.all()
	w.blocks = w.blocks[:0]
	for n < len(named) && named[n].k < k {
		if !w.plan.counts() {
			w.blocks = append(w.blocks, w.block(&named[n]))
			if w.plan.Again && w.plan.Chunks {
				p := named[n].piece
				w.seen[p>>6] &^= 1 << (p & 63)
			}
		}
		n++
	}
	w.sendPassed()
	switch {
	case n < len(named):
		// The records before the next chunk's are of about the same size.
		last, lastBytes := w.at, w.atBytes
		if n > 0 {
			last, lastBytes = named[n-1].k, named[n-1].bytes
		}
		w.atBytes = between(k, last, named[n].k, lastBytes, named[n].bytes)
	default:
		w.atBytes = between(k, w.at, w.to, w.atBytes, w.toBytes)
	}
	w.at = k
	w.named.pop(n)
	if !w.plan.Exact {
		w.rate()
	}
}

// between returns how many bytes there are before record k, which is in from … to.
func between(k, from, to uint64, fromBytes, toBytes int64) int64 {
	if to == from {
		return toBytes
	}
	return fromBytes + int64(float64(toBytes-fromBytes)*float64(k-from)/float64(to-from))
}

// rate measures how fast the reader reads, over about the last two plans.
func (w *Lookahead) rate() {
	now := w.plan.now()
	switch passed := now.Sub(w.since); {
	case w.since.IsZero():
	case passed < rateTime:
		return
	default:
		measured := float64(w.atBytes-w.sinceBytes) / passed.Seconds()
		if w.bytesPerSecond == 0 {
			w.bytesPerSecond = measured
		}
		w.bytesPerSecond += (measured - w.bytesPerSecond) / 2
	}
	w.since, w.sinceBytes = now, w.atBytes
}

// rateTime is the minimum time over which a rate is measured: what is in memory is read at once.
const rateTime = 200 * time.Millisecond

// grow returns how far to look ahead now.
func (w *Lookahead) grow() int64 {
	w.reach = min(max(2*w.reach, firstReachBytes), w.plan.Reach(w.bytesPerSecond))
	return w.reach
}

// look continues through the sequence up to record until, as far as reach and limits allow.
func (w *Lookahead) look(reach int64, until uint64) {
	if w.numbers == nil {
		w.numbers, w.extents = make([]uint64, blockRecords), make([]catalog.Extent, blockRecords)
	}
	from, most, step := w.to, w.plan.mostWants(), w.to+lookRecords
	for w.to < min(until, step) && w.named.len() < most && w.toBytes-w.atBytes < reach {
		m := w.seq.Records(w.to, w.numbers[:min(until-w.to, step-w.to, blockRecords)])
		if m == 0 {
			break
		}
		w.plan.Index.Extents(w.numbers[:m], w.extents[:m])
		for i, record := range w.numbers[:m] {
			if w.toBytes-w.atBytes >= reach {
				break
			}
			w.name(record, &w.extents[i])
			w.toBytes += w.extents[i].SizeBytes
			w.to++
		}
	}
	w.planAt = w.at + max((w.to-w.at)/4, 1)
	if w.to == step {
		w.planAt = w.at + 1 // small records: the rest is looked up in the next calls
	}
	if w.to == w.seq.Len() && from == w.to {
		w.planAt = w.to // there is nothing left
	}
}

// name notes the ranges that a record is the first to need.
func (w *Lookahead) name(record uint64, x *catalog.Extent) {
	p := w.plan
	s := p.Index.Shard(x.Shard)
	if s.Codec != nil {
		return // decoders read it from front to back
	}
	if !p.Chunks {
		n := min(x.SizeBytes, s.Object.SizeBytes-x.OffsetBytes) // a last line's newline may not be in the shard
		if n > 0 {
			w.named.push(named{k: w.to, bytes: w.toBytes, object: s.Object, off: x.OffsetBytes, n: n})
		}
		return
	}
	piece := p.Places.Table.Of(record)
	if w.seen == nil {
		w.seen = make([]uint64, (p.Places.Table.Len()+63)/64)
	}
	word, bit := &w.seen[piece>>6], uint64(1)<<(piece&63)
	if *word&bit != 0 {
		return
	}
	if p.Has != nil && p.Has(piece) {
		return
	}
	*word |= bit
	for off, n := range w.ranges(piece) {
		if n > 0 { // a lone newline may not be in the shard
			w.named.push(named{k: w.to, bytes: w.toBytes, object: s.Object, off: off, n: n, piece: piece})
		}
	}
	if p.counts() {
		if w.open == nil {
			w.open = map[int]opened{}
		}
		w.open[piece] = opened{k: w.to, until: w.until(piece)}
	}
}

// tell sends the plan to the storage.
func (w *Lookahead) tell() {
	w.blocks = w.blocks[:0]
	named := w.named.all()
	for i := range named {
		w.blocks = append(w.blocks, w.block(&named[i]))
	}
	w.told = true
	w.plan.Hints.Want(w.id, w.blocks)
}

func (w *Lookahead) block(x *named) storage.Block {
	return storage.Block{Object: x.object, OffsetBytes: x.off, SizeBytes: x.n, Epoch: w.epoch, DueBytes: max(x.bytes-w.atBytes, 0)}
}

// sendPassed reports that w.blocks are passed.
func (w *Lookahead) sendPassed() {
	if len(w.blocks) > 0 {
		w.plan.Hints.Passed(w.id, w.blocks)
	}
}

// count notes that the records from … k-1 have been delivered, and which pieces are done by that.
func (w *Lookahead) count(from, k uint64) {
	p := w.plan
	for from < k {
		m := w.seq.Records(from, w.numbers[:min(k-from, blockRecords)])
		if m == 0 {
			break
		}
		for _, record := range w.numbers[:m] {
			piece := p.Places.Table.Of(record)
			if o, ok := w.open[piece]; ok {
				o.own++
				w.open[piece] = o
				w.passed.pieces[piece].Add(1)
			}
		}
		from += uint64(m)
	}
	readers := uint64(max(p.readers.Load(), 1))
	w.blocks = w.blocks[:0]
	for piece, o := range w.open {
		if int32(w.passed.pieces[piece].Load()-o.until) >= 0 || p.StaleRecords > 0 && k > o.k && (k-o.k)*readers > p.StaleRecords {
			delete(w.open, piece)
			w.seen[piece>>6] &^= 1 << (piece & 63)
			object := p.Index.Shard(p.shardOf(piece)).Object
			for off, n := range w.ranges(piece) {
				w.blocks = append(w.blocks, w.block(&named{object: object, off: off, n: n}))
			}
		}
	}
	w.sendPassed()
}

// queue is a list of what is named, first in, first out, which reuses its memory.
type queue struct {
	items []named
	gone  int // the first ones of items have been popped
}

func (q *queue) len() int     { return len(q.items) - q.gone }
func (q *queue) all() []named { return q.items[q.gone:] }
func (q *queue) push(x named) { q.items = append(q.items, x) }

// pop removes the first n.
func (q *queue) pop(n int) {
	clear(q.items[q.gone : q.gone+n])
	if q.gone += n; 2*q.gone >= len(q.items) {
		rest := copy(q.items, q.items[q.gone:])
		clear(q.items[rest:])
		q.items, q.gone = q.items[:rest], 0
	}
}
