package window

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Plan is what the walkers of all readers have in common. A nil Plan is that of a storage
// which does not want to know what comes. Its fields are set before there are walkers; it
// is safe for concurrent use from then on.
type Plan struct {
	Planner storage.Planner
	Index   chunkmap.Index
	Places  *chunkmap.Map
	// Phase is the number of the phase that Places.Part is.
	Phase uint64
	// Layout says which bytes a piece is made of, with the records of a part.
	Layout func(part chunkmap.Part, number int) (shard int, l chunkmap.Layout)

	// Chunks says that pieces are wanted whole, each once; else the records are, one by one.
	Chunks bool
	// Keeps says that the Planner is a storage.Keeper, so it is to be told what is done:
	// a piece when the first of its records has gone out (DoneFirst, where pieces are in
	// memory then), or else when the last has.
	Keeps     bool
	DoneFirst bool
	// Again says that a record may come at several places of a sequence: a piece that has been
	// come to is told again when it comes once more and is not in memory.
	Again bool
	// StaleRecords is after how many records of all readers a piece is done whose last
	// record has not come: it was read by others, or before. 0: never.
	StaleRecords uint64
	// NearRecords is within how many records of where it was a reader counts as reading
	// on: see Near.
	NearRecords uint64
	// Has says that a piece is in memory, and nil that none is.
	Has func(piece int) bool

	// LookaheadBytes is what --lookahead says, and MostBytes a bound of what all readers look
	// ahead together.
	LookaheadBytes, MostBytes int64

	Now func() time.Time // nil for the machine's

	readers atomic.Int64
	mu      sync.Mutex
	passed  map[uint64]*passed // of each phase that has walkers, and the last one
}

// passed counts how many records of each piece have gone out, of one phase.
type passed struct {
	pieces  []atomic.Uint32
	walkers int // with Plan.mu held
}

// Init makes the tables.
func (p *Plan) Init() {
	if p.counts() {
		p.passed = map[uint64]*passed{}
		p.enter(p.Phase).walkers--
	}
}

// enter gives the counts of a phase to a walker. Those of phases that nobody goes through
// any more are dropped when another phase comes.
func (p *Plan) enter(phase uint64) *passed {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.passed[phase]
	if x == nil {
		maps.DeleteFunc(p.passed, func(_ uint64, x *passed) bool { return x.walkers == 0 })
		x = &passed{pieces: make([]atomic.Uint32, p.Places.Table.Len())}
		p.passed[phase] = x
	}
	x.walkers++
	return x
}

func (p *Plan) leave(x *passed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.walkers--
}

// counts says whether pieces are done with their last record.
func (p *Plan) counts() bool { return p.Keeps && p.Chunks && !p.DoneFirst }

// TableBytes is the memory of what there is for each piece.
func (p *Plan) TableBytes() int64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := int64(0)
	for _, x := range p.passed {
		n += int64(len(x.pieces)) * 4
	}
	return n
}

// Reach is how far one of the readers looks ahead that reads so fast.
func (p *Plan) Reach(bytesPerSecond float64) int64 {
	readers := max(p.readers.Load(), 1)
	return max(min(choose.Reach(p.LookaheadBytes, bytesPerSecond, readers), p.MostBytes/readers), 1)
}

func (p *Plan) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

func (p *Plan) near() uint64 { return max(p.NearRecords, nearRecords) }

func (p *Plan) mostWants() int {
	return max(mostWants/int(max(p.readers.Load(), 1)), 256)
}

func (p *Plan) shardOf(number int) int {
	var x [1]catalog.Extent
	p.Index.Extents(p.Places.Table.Starts[number:number+1], x[:])
	return x[0].Shard
}

// ranges are those of a piece's object, with the records of the walker's phase.
func (w *Lookahead) ranges(number int) iter.Seq2[int64, int64] {
	_, l := w.plan.Layout(w.part, number)
	return l.All()
}

// until is how many records of a piece have gone out, in all epochs of the phase, when all of
// it has in the epoch at hand.
func (w *Lookahead) until(number int) uint32 {
	starts := w.plan.Places.Table.Starts
	records := uint32(max(w.part.Count(starts[number], starts[number+1]), 1))
	return w.passed.pieces[number].Load()/records*records + records
}

// takeBack forgets records that the reader has counted of a piece which it leaves.
func (w *Lookahead) takeBack(number int, records uint32) {
	if records > 0 {
		w.passed.pieces[number].Add(^(records - 1))
	}
}
