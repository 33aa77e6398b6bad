package decode

import (
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Config of a Set.
type Config struct {
	Index  Index
	Pieces Pieces
	// Submit hands reads to the storage. Their Done calls Meter.Reading.End.
	Submit func([]*storage.Read)
	Meter  *meter.Meter
	Place  meter.Locator // names the shard of a record
	Now    func() int64  // nanoseconds
	Log    *slog.Logger

	Most       int   // decoders that are kept paused
	LimitBytes int64 // of the memory of all
	BlockBytes int   // of a read
	// Patience is how long a reader waits at most. Who waits for memory looks again
	// more often.
	Patience time.Duration
	// Dry means that the decoders and their buffers take no memory: there is none to collect when
	// one is closed.
	Dry bool
	// Hold is told by how many bytes more, or less, decoders hold. It is called with
	// the set's lock held.
	Hold func(bytes int64)
}

// Set are the decoders that stand somewhere in a compressed shard, at work or
// paused. It is safe for concurrent use.
type Set struct {
	c    Config
	work Work
	// cores has a token for each core: decoders hold one while they decode.
	cores   chan struct{}
	decoded atomic.Uint64 // bytes
	limit   atomic.Int64  // of the memory of all
	// goroutines are decoders at work, their reads and what collects their memory.
	goroutines sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	all     map[*Decoder]struct{}
	byShard map[int][]*Decoder // but those that Whole has given
	held    int64              // bytes of memory
	garbage int64              // bytes that closed ones have left to the collector
	spare   int64              // bytes that closed ones have left to the next ones
	// collecting says that somebody collects. changed is closed, and another
	// one made, when memory may have become free, if waiting decoders wait.
	collecting bool
	waiting    int
	changed    chan struct{}
	tick       uint64
	// passed counts, for each shard, the bytes that were decoded to get past
	// them; warned is set once that has been complained about.
	passed map[int]int64
	warned bool
}

// openCostBytes is about what opening a decoder costs, in decoded bytes.
const openCostBytes = 64 << 10

// NewSet makes an empty set, for the work of an owner.
func NewSet(c Config, w Work) *Set {
	s := &Set{
		c: c, work: w, cores: make(chan struct{}, runtime.GOMAXPROCS(0)),
		all: map[*Decoder]struct{}{}, byShard: map[int][]*Decoder{}, passed: map[int]int64{}, changed: make(chan struct{}),
	}
	s.limit.Store(c.LimitBytes)
	return s
}

// Allow changes Config.LimitBytes.
func (s *Set) Allow(bytes int64) { s.limit.Store(bytes) }

// Trim closes paused decoders until the others keep to the limit.
func (s *Set) Trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held > s.limit.Load() && s.closeOldest() {
	}
}

// Stats is a snapshot.
type Stats struct {
	Open         int // decoders
	HeldBytes    int64
	DecodedBytes uint64 // that have come out of all decoders so far, wanted or not
	PassedBytes  int64  // of these, that were decoded to get past them
}

// Stats gives a snapshot.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := Stats{Open: len(s.all), HeldBytes: s.held, DecodedBytes: s.decoded.Load()}
	for _, n := range s.passed {
		x.PassedBytes += n
	}
	return x
}

// Assign gives a load of a shard to the decoder that comes to its piece soonest: one
// that stands or will pass before it, or a new one at the last member that begins
// there. nil means that there is no room for another one to read ahead. The set must
// not be closed. Where the owner holds a lock that Work's methods take, it may note
// what it likes of the load until it lets go of it.
func (s *Set) Assign(shard int, l Load, u budget.Urgency) *Decoder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assign(shard, l, u)
}

// assign is Assign. s.mu is held.
func (s *Set) assign(shard int, l Load, u budget.Urgency) *Decoder {
	start, _, _ := l.Bounds()
	var best *Decoder
	var at int64
	for _, d := range s.byShard[shard] {
		if p, ok := d.placeBefore(l); ok && (best == nil || p > at) {
			best, at = d, p
		}
	}
	entry := s.c.Index.Entry(shard, start)
	if best == nil || Enters(start, at, entry.DecodedBytes) || s.shares(best, start, entry.DecodedBytes) {
		full := len(s.all) >= s.c.Most || len(s.all) > 0 && s.held >= s.limit.Load()
		if full && !s.closeOldest() && u != budget.Demand {
			return nil
		}
		best = s.newDecoder(shard, entry, scratchBytes)
		s.byShard[shard] = append(s.byShard[shard], best)
		s.all[best] = struct{}{}
		s.hold(best, best.memory())
	}
	best.add(l)
	if !best.running {
		best.running = true
		best.clock.Store(s.c.Now())
		s.goroutines.Add(1)
		go s.run(best)
	}
	return best
}

// Enters says whether a piece that begins at start in its decoded shard is worth
// another decoder at an entry, where one stands at some place before it.
func Enters(start, stands, entry int64) bool {
	return start-stands > start-entry+openCostBytes
}

// shareBytes is how much a decoder has before it at least, of which another one takes the end.
const shareBytes = 2 << 20

// shares says whether a piece that begins at start is worth a decoder of its own at an entry, beside one
// that comes to it later: a core is free, and it begins right behind the entry, so that little is decoded twice.
func (s *Set) shares(d *Decoder, start, entry int64) bool {
	if !d.running || entry-d.at < shareBytes || start-entry > shareBytes/8 {
		return false
	}
	working := 0
	for o := range s.all {
		if o.running {
			working++
		}
	}
	return working < cap(s.cores) && len(s.all) < s.c.Most && s.held < s.limit.Load()
}

// Whole gives a decoder of a whole shard to a caller who decodes with Fill to a buffer
// of so many bytes, and calls End. clock and waits take the place of its own.
func (s *Set) Whole(shard int, bufferBytes int64, clock *atomic.Int64, waits *meter.WaitClock) *Decoder {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.newDecoder(shard, s.c.Index.Entry(shard, 0), bufferBytes)
	d.raw.got, d.raw.waits = clock, waits
	d.running = true
	s.all[d] = struct{}{}
	s.hold(d, d.memory())
	return d
}

// End forgets a decoder that Whole has given.
func (s *Set) End(d *Decoder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(d)
}

// hold notes how much memory a decoder holds; others make room for it.
func (s *Set) hold(d *Decoder, bytes int64) {
	s.spare -= min(s.spare, max(0, bytes-d.held)) // its buffers are those, where they fit
	s.held += bytes - d.held
	s.c.Hold(bytes - d.held)
	d.held = bytes
}

// pause is called with mu held when a decoder has nothing to do.
func (s *Set) pause(d *Decoder) {
	d.running = false
	s.wake()
	s.tick++
	d.used = s.tick
	if d.parts && !d.member {
		s.remove(d) // the next part can be entered as well by another
		return
	}
	if !s.c.Pieces.AnyFrom(d.shard, d.piece) {
		s.remove(d) // nothing follows that it could bring
		return
	}
	for len(s.all) > s.c.Most || s.held > s.limit.Load() && len(s.all) > 1 {
		if !s.closeOldest() {
			return
		}
	}
}

// closeOldest closes the decoder that has been paused the longest.
func (s *Set) closeOldest() bool {
	var oldest *Decoder
	for _, list := range s.byShard {
		for _, d := range list {
			if !d.running && (oldest == nil || d.used < oldest.used) {
				oldest = d
			}
		}
	}
	if oldest == nil {
		return false
	}
	s.remove(oldest)
	return true
}

// remove forgets a decoder and frees what it holds.
func (s *Set) remove(d *Decoder) {
	list := slices.DeleteFunc(s.byShard[d.shard], func(x *Decoder) bool { return x == d })
	if len(list) == 0 {
		delete(s.byShard, d.shard)
	} else {
		s.byShard[d.shard] = list
	}
	delete(s.all, d)
	if d.dec != nil {
		d.dec.Close()
		d.dec = nil
	}
	d.raw.release()
	if !d.parts { // theirs are small, and used again
		s.leave(d.held)
	}
	s.hold(d, 0)
	s.wake()
}

// notePassed counts bytes that a decoder decodes for nothing. Once it has that one
// complain, when it has let go of the lock.
func (s *Set) notePassed(d *Decoder, bytes int64) {
	s.passed[d.shard] += bytes
	x := s.c.Index.Shard(d.shard)
	if n := s.passed[d.shard]; !s.warned && n > slowPasses*max(x.DecodedBytes, slowBytes) {
		s.warned = true
		d.complaint = n
	}
}

// complain says how many bytes of a decoder's shard were decoded for nothing, if it is
// to. It is called without the lock: whoever is told may take his time, or ask for
// statistics.
func (s *Set) complain(d *Decoder) {
	if n := d.complaint; n > 0 {
		d.complaint = 0
		x := s.c.Index.Shard(d.shard)
		s.c.Log.Warn("reading is slow: a compressed shard of few gzip members, zstd or lz4 frames is decoded again and again, because the order jumps about in it; use the reservoir shuffle, more memory, or uncompressed shards",
			"shard", x.Object.Path, "decoded_bytes", x.DecodedBytes, "passed_over_bytes", n)
	}
}

const (
	slowPasses = 4
	slowBytes  = 1 << 20
)

// Stop has decoders end: their loads end with ErrClosed. Whoever waits for memory
// goes on.
func (s *Set) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
}

// Close waits for decoders that were told to stop, and for their reads, and frees
// those that are paused. Nobody decodes what Whole has given any more.
func (s *Set) Close() {
	s.goroutines.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.closeOldest() {
	}
}
