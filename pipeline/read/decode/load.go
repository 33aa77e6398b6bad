package decode

import (
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
)

// Load is a piece on its way to memory. Its owner makes it, and sets Piece, Shard and Layout, which
// stay as they are.
type Load struct {
	Piece  int // its number; the pieces of a shard have consecutive numbers, in shard order
	Shard  int
	Layout chunkmap.Layout
	// Memory is where the layout's ranges are stored, one after the other. The owner sets it, at the
	// latest in Owner.Room or Passing.
	Memory []byte
	// Waiters is how many readers wait for it. The owner changes it.
	Waiters atomic.Int32
	// Place is set once the load's bytes can be read from the spool, and until that has failed. The
	// owner may look at it from when Ask or News returned the load.
	Place *Place

	decoder *Decoder // the last one that it was assigned to; guarded by Set.mu
	// clock and waits are of the decoder that the load waits for; nil before there is one.
	clock atomic.Pointer[atomic.Int64]
	waits atomic.Pointer[meter.WaitClock]
}

// Waited reports whether a reader waits for the load.
func (l *Load) Waited() bool { return l.Waiters.Load() > 0 }

// Urgency returns what may be done to find memory for the load.
func (l *Load) Urgency() budget.Urgency {
	if l.Waited() {
		return budget.Demand
	}
	return budget.Prefetch
}

// Progress returns when the load's decoder last made progress, in nanoseconds of the set's now; 0 if
// it has none.
func (l *Load) Progress() int64 {
	if c := l.clock.Load(); c != nil {
		return c.Load()
	}
	return 0
}

// Waits returns the record of what the load's decoder waits for; nil if it has none.
func (l *Load) Waits() *meter.WaitClock { return l.waits.Load() }

// Owner has the pieces and their memory. It knows its loads by the numbers of their pieces: it has
// at most one of each. Its methods are called concurrently, without a lock of this package, unless
// stated otherwise.
type Owner interface {
	// Room allocates the memory of a load that a decoder has reached. If there is none, it ends the
	// load and returns false.
	Room(*Load) bool
	// Passing returns a load, with its memory, for a piece that a decoder is about to pass, if the
	// piece is worth keeping and neither in memory nor being loaded; else nil.
	Passing(piece int) *Load
	// Next returns the first piece of the shard, from piece on, to which a decoder without loads
	// should move on; -1 for none.
	Next(shard, piece int) int
	// Came completes a load whose bytes are in its memory.
	Came(*Load)
	// Failed ends loads of a shard with an error. After a *format.CorruptError nothing of the shard
	// can be trusted any more, even if there are no loads.
	Failed(shard int, loads []*Load, err error)
	// News continues loads that were asked of the spool.
	News(News)
	// WantedSoon reports whether a reader will need the shard soon; with missing, whether it will
	// need a piece of it that is not in memory. It is called with the spool's lock held, and must
	// not take a lock.
	WantedSoon(shard int, missing bool) bool
	// Shrink is called when decoders hold more memory than before.
	Shrink()
}
