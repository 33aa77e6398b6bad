package ahead

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/piece"
	"github.com/lsiofs/lsiofs/pipeline/fetch/strategy"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Plan is what the walkers of all readers have in common. A nil Plan is that of a storage
// which does not want to know what comes. Its fields are set before there are walkers; it
// is safe for concurrent use from then on.
type Plan struct {
	Planner storage.Planner
	Index   piece.Index
	Places  *piece.Places
	// Layout says which bytes a piece is made of.
	Layout func(piece int) (shard int, l piece.Layout)

	// Chunks says that pieces are wanted whole, each once; else the records are, one by one.
	Chunks bool
	// Keeps says that the Planner is a storage.Keeper, so it is to be told what is done:
	// a piece when the first of its records has gone out (DoneFirst, where pieces are in
	// memory then), or else when the last has.
	Keeps     bool
	DoneFirst bool
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
	passed  []atomic.Uint32 // records that have gone out, of each piece
}

// Init makes the tables.
func (p *Plan) Init() {
	if p.counts() {
		p.passed = make([]atomic.Uint32, p.Places.Table.Len())
	}
}

// counts says whether pieces are done with their last record.
func (p *Plan) counts() bool { return p.Keeps && p.Chunks && !p.DoneFirst }

// TableBytes is the memory of what there is for each piece.
func (p *Plan) TableBytes() int64 {
	if p == nil {
		return 0
	}
	return int64(len(p.passed)) * 4
}

// Reach is how far one of the readers looks ahead that reads so fast.
func (p *Plan) Reach(bytesPerSecond float64) int64 {
	readers := max(p.readers.Load(), 1)
	return max(min(strategy.Reach(p.LookaheadBytes, bytesPerSecond, readers), p.MostBytes/readers), 1)
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

// ranges are those of a piece's object.
func (p *Plan) ranges(number int) iter.Seq2[int64, int64] {
	_, l := p.Layout(number)
	return l.All()
}

func (p *Plan) shardOf(number int) int {
	var x [1]catalog.Extent
	p.Index.Extents(p.Places.Table.Starts[number:number+1], x[:])
	return x[0].Shard
}

// until is how many records of a piece have gone out, in all epochs, when all of it has in
// the epoch at hand.
func (p *Plan) until(number int) uint32 {
	records := uint32(max(p.Places.Part.Count(p.Places.Table.Starts[number], p.Places.Table.Starts[number+1]), 1))
	return p.passed[number].Load()/records*records + records
}

// takeBack forgets records that a reader has counted of a piece which it leaves.
func (p *Plan) takeBack(number int, records uint32) {
	if records > 0 {
		p.passed[number].Add(^(records - 1))
	}
}
