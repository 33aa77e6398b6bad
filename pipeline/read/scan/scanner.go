package scan

import (
	"errors"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/spool"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
)

// Scanner reads the pieces of one dataset once for all readers, keeps records until they are
// delivered, and drops them when the budget requires it. It is safe for concurrent use.
type Scanner struct {
	index    Index
	storage  Storage
	config   Config
	phases   phases
	limits   choose.Limits
	log      *slog.Logger
	verifier format.Verifier // nil if records carry no checksums
	pieces   chunkmap.Table
	places   *chunkmap.Map
	slots    *slots
	counts   counters
	meter    *meter.Meter
	started  time.Time
	open     atomic.Int64   // readers
	wanted   *window.Wanted // nil if no shard is compressed
	maps     *mapped.Maps
	decoders *decode.Set
	budget   *budget.Budget
	// loanSegments is how many segments one call of Read may pin.
	loanSegments atomic.Int64
	note         func(error)

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

// New starts a scanner. The caller keeps ownership of what the configuration refers to, except the
// spool's shelf, which it keeps only if New fails.
func New(c Config) (*Scanner, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	sc := &Scanner{
		index: c.Index, storage: c.Storage, config: c, limits: c.Limits, log: c.Log,
		verifier: c.Verifier, pieces: c.Places.Table, meter: c.Meter, note: c.Note,
		started: time.Now(),
		loads:   map[int]*load{},
		broken:  map[int]error{},
	}
	sc.phases.init(chunkmap.Subset{Number: c.Phase, Part: c.Places.Part})
	sc.places = c.Places.Of(&sc.phases)
	if sc.meter == nil {
		sc.meter = new(meter.Meter)
	}
	if sc.log == nil {
		sc.log = slog.New(slog.DiscardHandler)
	}
	if sc.note == nil {
		sc.note = func(error) {}
	}
	sc.makeTables()
	sc.budget = budget.New(sc.limits.CacheBytes)
	sc.loanSegments.Store(int64(sc.limits.LoanSegments))
	sc.cache = cache{
		memory: memory{segment: sc.limits.SegmentBytes, released: c.Released, dry: c.Dry != nil},
		budget: sc.budget, ask: c.Ask, mostTables: sc.limits.TableBytes, slots: sc.slots, gone: map[int][]uint64{},
	}
	sc.maps = mapped.New(sc.mapsConfig(), mapsOwner{sc})
	sc.decoders = sc.newDecoders()
	if c.Spool != nil {
		sc.spool = sc.startSpool(c.Spool)
	}
	sc.checks.init()
	if sc.verifier != nil {
		for range runtime.GOMAXPROCS(0) {
			sc.running.Go(sc.checkRecords)
		}
	}
	return sc, nil
}

// makeTables makes the tables that have an entry per piece.
func (sc *Scanner) makeTables() {
	n := sc.pieces.Len()
	if p := sc.config.Plan; p != nil {
		p.Index, p.Places, p.Phase, p.Layout = sc.index, sc.config.Places, sc.config.Phase, sc.config.layoutWith
		p.Chunks, p.DoneFirst, p.NearRecords = true, true, sc.config.nearRecords()
		p.Has = func(piece int) bool { return sc.slots.at(piece) != nil }
		p.Init()
	}
	wanted := sc.config.Held.Pieces
	if sc.config.Sampled {
		wanted = math.MaxInt32 // of all phases: never all in memory
	}
	sc.slots = newSlots(n, wanted)
	sc.everRead = make([]uint64, (n+63)/64)
	for i := range sc.index.Shards() {
		if sc.index.Shard(i).Codec != nil {
			sc.wanted = window.NewCounts(&sc.pieces)
			sc.wanted.Bound(sc.config.MostWanted)
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
