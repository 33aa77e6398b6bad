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

// Plan is what the Lookaheads of all readers have in common. It is nil if the storage takes no
// hints. Its fields are set before there are Lookaheads; from then on it is safe for concurrent
// use.
type Plan struct {
	Hints  storage.Hints
	Index  chunkmap.Index
	Places *chunkmap.Map // nil if Exact
	// Phase is the number of the phase in Places.Part.
	Phase uint64
	// Layout returns which bytes a piece consists of, with the records of a part.
	Layout func(part chunkmap.Part, number int) (shard int, l chunkmap.Layout)

	// Exact is storage.HintUse.Exact: blocks are the records that readers are about to submit.
	// Nothing of the following, up to MostBytes, is set.
	Exact bool
	// Chunks means that whole pieces are needed, each once; otherwise records are, one by one.
	Chunks bool
	// Keeps is storage.HintUse.Keeps: a piece is passed when its first record has been delivered
	// (DoneFirst: pieces are in memory then), or otherwise when its last record has.
	Keeps     bool
	DoneFirst bool
	// Again means that a record may occur more than once in a sequence: a piece that was reached is
	// planned again when it comes once more and is not in memory.
	Again bool
	// StaleRecords is after how many records of all readers a piece is done even if its last record
	// has not been delivered: it was read by others, or before. 0: never.
	StaleRecords uint64
	// NearRecords is the distance in records up to which a reader counts as reading on: see Near.
	NearRecords uint64
	// Has reports whether a piece is in memory; nil: none is.
	Has func(piece int) bool

	// LookaheadBytes is the value of --lookahead, and MostBytes limits what all readers look ahead
	// together.
	LookaheadBytes, MostBytes int64

	Now func() time.Time // nil for time.Now

	readers atomic.Int64
	mu      sync.Mutex
	passed  map[uint64]*passed // of each phase that has Lookaheads, and the last one
}

// passed counts how many records of each piece have been delivered, of one phase.
type passed struct {
	pieces  []atomic.Uint32
	walkers int // guarded by Plan.mu
}

// Init makes the tables.
func (p *Plan) Init() {
	if p.counts() {
		p.passed = map[uint64]*passed{}
		p.enter(p.Phase).walkers--
	}
}

// enter returns the counts of a phase to a new Lookahead. Counts of phases without Lookaheads are
// dropped when another phase begins.
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

// counts reports whether pieces are done with their last record.
func (p *Plan) counts() bool { return p.Keeps && p.Chunks && !p.DoneFirst }

// TableBytes returns the memory of the tables that have an entry per piece.
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

// Reach returns how far a reader looks ahead that reads at the given rate.
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

// mostWants limits what is planned for one reader.
func (p *Plan) mostWants() int {
	most := mostWants
	if p.Exact {
		most = mostExactWants
	}
	return max(most/int(max(p.readers.Load(), 1)), 256)
}

func (p *Plan) shardOf(number int) int {
	var x [1]catalog.Extent
	p.Index.Extents(p.Places.Table.Starts[number:number+1], x[:])
	return x[0].Shard
}

// ranges returns the ranges of a piece's object, with the records of w's phase.
func (w *Lookahead) ranges(number int) iter.Seq2[int64, int64] {
	_, l := w.plan.Layout(w.part, number)
	return l.All()
}

// until returns how many records of a piece have been delivered, in all epochs of the phase, when
// all of it has been in the current epoch.
func (w *Lookahead) until(number int) uint32 {
	starts := w.plan.Places.Table.Starts
	records := uint32(max(w.part.Count(starts[number], starts[number+1]), 1))
	return w.passed.pieces[number].Load()/records*records + records
}

// takeBack subtracts the records that the reader has counted of a piece that it leaves.
func (w *Lookahead) takeBack(number int, records uint32) {
	if records > 0 {
		w.passed.pieces[number].Add(^(records - 1))
	}
}
