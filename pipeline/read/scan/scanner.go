package scan

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/spool"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
)

// Scanner reads the pieces of one dataset once for all readers, keeps records until they are
// delivered, and drops them when the budget requires it. It is safe for concurrent use.
type Scanner struct {
	o    *options.Options
	plan *window.Plan // nil if the storage is not a storage.Planner
	// sampled means that there may be readers of other parts (OpenPhase).
	sampled bool
	// holdsAll means that all compressed shards, decoded, stay in memory.
	holdsAll bool
	// sweeps means that a decoder continues to the last wanted piece. See choose.Sizes.Lookahead.
	sweeps bool

	phases   phases
	limits   choose.Limits
	pieces   chunkmap.Table
	places   *chunkmap.Map // of phases
	slots    *slots
	counts   counters
	started  time.Time
	open     atomic.Int64   // readers
	wanted   *window.Wanted // nil if no shard is compressed
	maps     *mapped.Maps
	decoders *decode.Set
	budget   *budget.Budget
	// loanSegments is how many segments one call of Read may pin.
	loanSegments atomic.Int64

	checks  checkQueue
	running sync.WaitGroup // reads, decoders, the goroutines that verify

	mu       sync.Mutex
	cache    cache
	loads    map[int]*load
	aheadOut int64        // bytes of loads in flight that are read ahead
	spool    *spool.Spool // nil if no shard is spooled
	everRead []uint64     // one bit per piece
	broken   map[int]error
	closed   bool
}

// New starts a scanner. shelf is for the decoded bytes of spooled shards, which o.Choice determines;
// nil if there are none. The scanner takes ownership of it. plan tells the storage what will be
// read; nil if the storage is not a storage.Planner. Its Planner and bounds must be set, New sets the
// rest.
func New(o *options.Options, shelf *diskcache.Shelf, plan *window.Plan) *Scanner {
	v := o.Survey
	sizes := v.Sizes()
	sc := &Scanner{
		o: o, plan: plan, sampled: o.Sampled(), holdsAll: v.Compressed && sizes.Fits(),
		limits: v.Limits, pieces: v.Places.Table, started: time.Now(),
		loads:  map[int]*load{},
		broken: map[int]error{},
	}
	var mostWanted int64
	mostWanted, sc.sweeps = sizes.Lookahead(o.Choice)
	sc.phases.init(chunkmap.Subset{Number: o.Phase, Part: v.Places.Part})
	sc.places = v.Places.Of(&sc.phases)
	sc.makeTables(mostWanted)
	sc.budget = budget.New(sc.limits.CacheBytes)
	sc.loanSegments.Store(int64(sc.limits.LoanSegments))
	sc.cache = cache{
		memory: memory{segment: sc.limits.SegmentBytes, released: o.Released, dry: o.Dry != nil},
		budget: sc.budget, ask: o.Ask, mostTables: sc.limits.TableBytes, slots: sc.slots, gone: map[int][]uint64{},
	}
	sc.maps = mapped.New(sc.mapsConfig(), mapsOwner{sc})
	sc.decoders = decode.NewSet(o, sc.places, sc.budget, sc.now, decoding{sc})
	if shelf != nil {
		sc.spool = spool.New(o, sc.places, sc.decoders.Through, sc.budget, sc.now, shelf, spooling{sc})
	}
	sc.checks.init()
	if o.Verifier != nil {
		for range runtime.GOMAXPROCS(0) {
			sc.running.Go(sc.checkRecords)
		}
	}
	return sc
}

// makeTables makes the tables that have an entry per piece. Up to mostWanted pieces may be wanted at a
// time, 0 for any number.
func (sc *Scanner) makeTables(mostWanted int64) {
	n := sc.pieces.Len()
	if p := sc.plan; p != nil {
		p.Index, p.Places, p.Phase, p.Layout = sc.o.Index, sc.o.Survey.Places, sc.o.Phase, sc.layoutWith
		p.Chunks, p.DoneFirst, p.NearRecords = true, true, sc.nearRecords()
		p.Has = func(piece int) bool { return sc.slots.at(piece) != nil }
		p.Init()
	}
	wanted := sc.o.Survey.Held.Pieces
	if sc.sampled {
		wanted = math.MaxInt32 // of all phases: never all in memory
	}
	sc.slots = newSlots(n, wanted)
	sc.everRead = make([]uint64, (n+63)/64)
	for i := range sc.o.Index.Shards() {
		if sc.o.Index.Shard(i).Codec != nil {
			sc.wanted = window.NewCounts(&sc.pieces)
			sc.wanted.Bound(mostWanted)
			break
		}
	}
}

// TableBytes returns the memory of the tables that have an entry per piece.
func (sc *Scanner) TableBytes() int64 {
	n := sc.pieces.Bytes() + int64(len(sc.everRead))*8
	if sc.wanted != nil {
		n += sc.wanted.Bytes()
	}
	return n
}

// Cores returns how many decoders decode at the same time.
func (sc *Scanner) Cores() int { return sc.decoders.Cores() }

// now returns nanoseconds since the scanner started.
func (sc *Scanner) now() int64 { return int64(time.Since(sc.started)) }

// Close stops reading ahead, waits for loads in progress and frees the memory. All pinned records
// must have been released, and no Reader may be in use. It is idempotent.
func (sc *Scanner) Close() error {
	sc.mu.Lock()
	if sc.closed {
		sc.mu.Unlock()
		return nil
	}
	sc.closed = true
	sc.mu.Unlock()
	sc.decoders.Stop()
	if sc.spool != nil {
		sc.spool.Stop()
		sc.spool.Wait()
	}
	sc.checks.close()
	sc.maps.Stop() // what it refuses is read
	sc.running.Wait()
	err := sc.maps.Close()

	sc.decoders.Close()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return errors.Join(err, sc.closeSpool(), sc.cache.close())
}
