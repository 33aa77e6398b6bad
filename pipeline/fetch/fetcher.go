package fetch

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/gather"
	"github.com/lsiofs/lsiofs/pipeline/fetch/mapped"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// index is what a fetcher needs of a catalog.
type index interface {
	Records() uint64
	Shards() int
	Shard(i int) catalog.Shard
	Unpacker() unpack.Format
	Extents(records []uint64, dst []catalog.Extent)
	PieceStarts(chunkBytes, chunkRecords, wholeBytes uint64) []uint64
	Entry(shard int, decodedBytes int64) unpack.Entry
	Part(shard int, decodedBytes int64) catalog.Part
}

var _ index = (*catalog.Catalog)(nil)

// Fetcher reads the pieces of one dataset once for all readers, keeps records
// until they have gone out, and drops them when the budget says so. It is safe
// for concurrent use.
type Fetcher struct {
	index    index
	storage  storage.Storage
	config   Config
	part     Part
	limits   limits
	log      *slog.Logger
	verifier unpack.Verifier // nil when records carry no checksums
	pieces   pieceTable
	slots    *slots
	counts   counters
	meter    *meter.Meter
	started  time.Time
	open     atomic.Int64 // readers
	wanted   wanted
	held     holding
	holdsAll bool // all shards, decoded, fit into the cache, with their tables
	looking  looking
	maps     *mapped.Maps
	choice   Choice

	// Records are gathered where there is a gatherer, which then does all.
	gatherer     *gather.Gatherer
	gatherMemory *budget.Blocks

	// cpu has a token for each processor: decoders hold one while they decode.
	cpu     chan struct{}
	checks  checkQueue
	running sync.WaitGroup // reads, decoders, the pool

	mu       sync.Mutex
	cache    cache
	loads    map[int]*load
	aheadOut int64 // bytes of loads that are read ahead and have not come
	decoders decoders
	spool    *spool   // nil when no shard is spooled
	everRead []uint64 // a bit a piece
	broken   map[int]error
	failures failures
	closed   bool
}

// New starts a fetcher. The catalog and the storage stay the caller's.
func New(c *catalog.Catalog, s storage.Storage, cfg Config) (*Fetcher, error) {
	return newFetcher(c, s, cfg)
}

func newFetcher(x index, s storage.Storage, cfg Config) (*Fetcher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Decoders == 0 {
		cfg.Decoders = defaultDecoders
	}
	if cfg.LookaheadRecords == 0 {
		cfg.LookaheadRecords = defaultLookahead
	}
	cfg.Storage = cfg.Storage.Or()
	f := &Fetcher{
		index: x, storage: s, config: cfg, part: cfg.Part, meter: cfg.Meter, log: cfg.Log,
		started: time.Now(),
		cpu:     make(chan struct{}, runtime.GOMAXPROCS(0)),
		loads:   map[int]*load{},
		broken:  map[int]error{},
	}
	if f.meter == nil {
		f.meter = new(meter.Meter)
	}
	if f.part == nil {
		f.part = everything{}
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if cfg.Order.Shuffle == spec.ShuffleNone {
		// There are no chunks to go by, and a piece has a table.
		f.config.PieceRecords = max(cfg.PieceRecords, leastFrontRecords)
	}
	if err := f.makeTables(cfg.PieceBytes); err != nil {
		return nil, err
	}
	f.verifier, _ = x.Unpacker().(unpack.Verifier)
	if err := f.openSpool(); err != nil {
		return nil, err
	}
	if f.spool != nil && cfg.Order.Shuffle == spec.ShuffleFull {
		// A record at a time is wanted of a piece: let it bring little else.
		if err := f.makeTables(f.choice.finePieceBytes(&cfg)); err != nil {
			return nil, errors.Join(err, f.closeSpool())
		}
	}
	f.cache = cache{memory: memory{segment: f.limits.segment}, budget: f.limits.cache, mostTables: f.limits.tables, slots: f.slots, gone: map[int][]uint64{}}
	f.maps = mapped.New(f.mapsConfig(), mapsOwner{f})
	f.decoders = decoders{all: map[*decoder]struct{}{}, byShard: map[int][]*decoder{}, passed: map[int]int64{}, changed: make(chan struct{})}
	f.holdsAll = f.wanted != nil && f.fits()
	f.newLooking()
	f.checks.init()
	if f.choice.Strategy == spec.ReadGather {
		if err := f.startGatherer(); err != nil {
			return nil, err
		}
	} else if f.verifier != nil || f.spool != nil {
		for range cap(f.cpu) {
			f.running.Go(f.checkRecords)
		}
	}
	return f, nil
}

// leastFrontRecords is how many records of a shard that is read from front to back
// may be a piece.
const leastFrontRecords = 128

// recordsOf is how many records of a shard are of the part.
func (f *Fetcher) recordsOf(s catalog.Shard) uint64 {
	return f.part.Count(s.First, s.First+s.Records)
}

// wants says whether records of a piece are of the part.
func (f *Fetcher) wants(piece int) bool {
	return f.part.Count(f.pieces.starts[piece], f.pieces.starts[piece+1]) > 0
}

// makeTables makes what there is for each piece, and the limits that follow.
func (f *Fetcher) makeTables(pieceBytes uint64) error {
	x := f.index
	pieces, err := newPieceTable(x.PieceStarts(pieceBytes, f.config.PieceRecords, uint64(f.wholeBytes())), x.Records())
	if err != nil {
		return err
	}
	f.pieces = pieces
	f.held = f.holding()
	f.slots = newSlots(pieces.len(), f.held.pieces)
	f.everRead = make([]uint64, (pieces.len()+63)/64)
	for i := range x.Shards() {
		if x.Shard(i).Codec != nil {
			f.wanted = make(wanted, pieces.len())
			break
		}
	}
	f.limits = newLimits(f.config.MemoryBytes, 2*f.tableBytes(), f.config.Storage) // twice: see tableBytes
	return nil
}

// wholeBytes is how large a piece of a shard that is made of parts may be, whatever
// Config.PieceBytes: what fits into a segment is decoded at once.
func (f *Fetcher) wholeBytes() int64 { return segmentBytes(f.config.MemoryBytes) }

// now is nanoseconds since the fetcher started.
func (f *Fetcher) now() int64 { return int64(time.Since(f.started)) }

// Close stops reading ahead, waits for what is under way and frees the memory.
// No Loan may be out and no Reader in use.
func (f *Fetcher) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.wakeDecoders()
	f.mu.Unlock()
	f.checks.close()
	f.maps.Stop() // what it refuses is read
	f.running.Wait()
	err := errors.Join(f.maps.Close(), f.closeGatherer())

	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeDecoders()
	return errors.Join(err, f.closeSpool(), f.cache.close())
}

// close frees all memory. A segment that a loan still pins is left to it: a
// leak is better than a loan that shows something else.
func (c *cache) close() error {
	var first error
	for _, s := range c.segs {
		for _, e := range s.entries {
			if c.slots.at(e.piece) == e {
				c.slots.set(e.piece, nil)
			}
		}
		if !s.Pins.Kill() {
			continue
		}
		if err := c.release(s); err != nil && first == nil {
			first = err
		}
	}
	c.segs, c.cur = nil, nil
	if err := c.memory.close(); err != nil && first == nil {
		first = err
	}
	return first
}

// counters are what Stats tells and no lock protects.
type counters struct {
	recordsOut, bytesOut, hits, waits, waitNanos atomic.Uint64
	piecesRead, piecesReread, bytesRead, decoded atomic.Uint64
	recordsMapped                                atomic.Uint64
	readsCancelled, bytesCancelled               atomic.Uint64
}
