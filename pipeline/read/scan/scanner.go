package scan

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
)

// Scanner reads the pieces of one dataset once for all readers, keeps records until they are
// delivered, and drops them when the budget requires it. It is safe for concurrent use.
type Scanner struct {
	o    *options.Options
	plan *window.Plan // nil if the storage takes no hints
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
	aheadOut int64         // bytes of loads in flight that are read ahead
	spool    *decode.Spool // nil if no shard is spooled
	everRead []uint64      // one bit per piece
	broken   map[int]error
	closed   bool
}

// New starts a scanner. shelf is for the decoded bytes of spooled shards, which o.Choice determines;
// nil if there are none. The scanner takes ownership of it. plan tells the storage what will be
// read; nil if the storage takes no hints. Its Hints and bounds must be set, New sets the
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
		memory: newMemory(sc.limits.SegmentBytes, o.Released, o.Dry != nil),
		budget: sc.budget, ask: o.Ask, mostTables: sc.limits.TableBytes, slots: sc.slots, gone: map[int][]uint64{},
	}
	sc.maps = mapped.New(sc.mapsConfig(), mapsOwner{sc})
	sc.decoders = decode.NewSet(o, sc.places, sc.budget, sc.now, owner{sc})
	if shelf != nil {
		sc.spool = decode.NewSpool(o, sc.places, sc.decoders.Through, sc.budget, sc.now, shelf, owner{sc})
	}
	var next func(shard, piece int) int
	if sc.counted() {
		next, sc.cache.soon = sc.nextWanted, sc.wanted.Count
	}
	sc.cache.closeDecoder = func() bool { return sc.decoders.CloseCheap(next) }
	sc.checks.init()
	if o.Verifier != nil {
		for range runtime.GOMAXPROCS(0) {
			sc.running.Go(sc.checkRecords)
		}
	}
	return sc
}

// makeTables makes the tables that have an entry per piece. Up to mostWanted pieces may be wanted
// at a time, 0 for any number.
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

// counted reports whether it is counted which pieces readers will need soon: not if no shard is
// compressed, nor if all pieces are kept, wanted or not.
func (sc *Scanner) counted() bool { return sc.wanted != nil && !(sc.holdsAll && sc.spool == nil) }

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

// nearRecords returns the distance in records up to which a reader counts as reading on.
func (sc *Scanner) nearRecords() uint64 {
	h := &sc.o.Survey.Held
	return window.Near(h.Bytes / int64(max(h.Records, 1)))
}

// layoutWith returns the layout of a piece with the records of a part.
func (sc *Scanner) layoutWith(part chunkmap.Part, number int) (shard int, l chunkmap.Layout) {
	return sc.o.Survey.Places.Of(part).Layout(number, func(shard int) int64 {
		return choose.GapBytes(sc.o.Index.Shard(shard).Codec != nil, sc.sampled, sc.o.Profile)
	})
}

// eachRead splits a piece into reads that suit the storage.
func (sc *Scanner) eachRead(l *chunkmap.Layout, read func(chunkmap.Range)) {
	l.Reads(sc.o.Profile.ReadBytes, sc.o.Profile.AlignBytes, read)
}

var _ budget.Member = (*Scanner)(nil)

// Allow implements budget.Member. At Options.MemoryBytes, all limits are those of
// Options.Survey.Limits.
func (sc *Scanner) Allow(bytes int64) {
	l := &sc.limits
	cache := l.CacheBytes
	if bytes < sc.o.MemoryBytes {
		beside := sc.o.MemoryBytes - l.CacheBytes // tables, and segments to copy into
		cache = max(bytes-beside, min(bytes/2, cache))
	}
	share := float64(cache) / float64(max(l.CacheBytes, 1))
	sc.budget.Allow(cache)
	sc.decoders.Allow(int64(float64(l.DecoderBytes) * share))
	sc.maps.Allow(min(bytes, sc.o.MemoryBytes), cache/4)
	sc.loanSegments.Store(max(int64(float64(l.LoanSegments)*share), 1))
}

// Held implements budget.Member.
func (sc *Scanner) Held() int64 { return sc.budget.Held() + sc.TableBytes() }

// Lent implements budget.Member.
func (sc *Scanner) Lent() int64 { return int64(sc.counts.bytesOut.Load()) }

// Readers implements budget.Member.
func (sc *Scanner) Readers() int64 { return sc.open.Load() }

// Shrink implements budget.Member: it closes idle decoders, drops pieces, and unmaps mapped ones.
// If Scanner.mu is held, dropping pieces is left to the next load that needs memory.
func (sc *Scanner) Shrink() {
	sc.decoders.Trim()
	if sc.mu.TryLock() {
		if !sc.closed {
			sc.cache.shrink()
		}
		sc.mu.Unlock()
	}
	sc.maps.Shrink()
}

// ShrinkDisk implements budget.Member: if there are no readers, the spool drops its shards and
// shortens its file.
func (sc *Scanner) ShrinkDisk() {
	if sc.spool != nil && sc.open.Load() == 0 {
		sc.spool.Shrink()
	}
}

// Stats is a snapshot. Counters only grow.
type Stats struct {
	RecordsOut, BytesOut uint64 // returned by Read
	RecordsMapped        uint64 // of these, from the page cache
	Hits                 uint64 // records that were in memory when asked for
	Waits                uint64 // records that a reader had to wait for
	WaitNanos            uint64
	PiecesRead           uint64
	PiecesReread         uint64 // read again because they had been dropped
	PiecesDropped        uint64
	BytesRead            uint64 // of pieces, decoded
	// DecodedBytes counts all output of decoders, needed or not.
	DecodedBytes uint64
	// ReadsCancelled and BytesCancelled count pieces that were requested ahead of readers that then
	// seeked away or closed, and had not begun.
	ReadsCancelled, BytesCancelled uint64
	HeldBytes                      int64 // in memory, now, tables included
	MappedBytes                    int64 // in the page cache, now
	LoadsInFlight, OpenDecoders    int64
	AheadBytes                     int64              // of loads in flight, those that are read ahead, with their tables
	Spool                          *decode.SpoolStats // nil if nothing is spooled
}

// counters are the parts of Stats that no lock protects.
type counters struct {
	recordsOut, bytesOut, hits, waits, waitNanos atomic.Uint64
	piecesRead, piecesReread, bytesRead          atomic.Uint64
	recordsMapped                                atomic.Uint64
	readsCancelled, bytesCancelled               atomic.Uint64
}

// Stats returns a snapshot.
func (sc *Scanner) Stats() Stats {
	n := &sc.counts
	s := Stats{
		PiecesRead: n.piecesRead.Load(), PiecesReread: n.piecesReread.Load(), BytesRead: n.bytesRead.Load(),
		RecordsOut: n.recordsOut.Load(), BytesOut: n.bytesOut.Load(), RecordsMapped: n.recordsMapped.Load(),
		Hits: n.hits.Load(), Waits: n.waits.Load(), WaitNanos: n.waitNanos.Load(),
		ReadsCancelled: n.readsCancelled.Load(), BytesCancelled: n.bytesCancelled.Load(),
		MappedBytes: sc.maps.Stats().Bytes,
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	decoders := sc.decoders.Stats() // first, so that memory that moves to a segment is not counted twice
	s.DecodedBytes = decoders.DecodedBytes
	s.HeldBytes = sc.cache.mapped() + sc.cache.tables + decoders.HeldBytes + sc.TableBytes()
	s.PiecesDropped = sc.cache.dropped
	s.LoadsInFlight, s.AheadBytes = int64(len(sc.loads)), sc.aheadOut
	s.OpenDecoders = int64(decoders.Open)
	if sc.spool != nil {
		x := sc.spool.Stats()
		s.HeldBytes += x.TableBytes
		s.Spool = &x
	}
	return s
}

// waitsFor returns the stage to charge for waiting on this load, and the decoder whose waits that
// is to be split by. It is called with mu held.
func (ld *load) waitsFor() (meter.Stage, *meter.WaitClock) {
	switch {
	case ld.Waits() != nil:
		return meter.Decompress, ld.Waits()
	case ld.stage.Load() == isQueued || ld.pending.Load() > 0:
		return meter.Storage, nil
	}
	return meter.Gather, nil
}

var (
	errClosed = budget.ErrClosed
	// errCalledOff ends a load that is no longer wanted. No reader sees it: a reader that needs the
	// piece later starts another load.
	errCalledOff = errors.New("the piece is not wanted any more")
	// errReaderClosed is returned for reads of a closed reader of a sample.
	errReaderClosed = errors.New("the reader is closed, and no other one reads this epoch")
	// errNotInPart is returned for a record that the reader's part does not have.
	errNotInPart = errors.New("internal error: the order has a record that is not in its part")
)
