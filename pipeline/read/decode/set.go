package decode

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
)

// Set holds all open decoders, running or paused. It is safe for concurrent use.
type Set struct {
	outlines outlines
	o        *options.Options
	places   *chunkmap.Map
	budget   *budget.Budget
	now      func() int64
	owner    Owner
	// blockBytes is the size of a read.
	blockBytes int
	// cores has a token for each core: decoders hold one while they decode.
	cores   chan struct{}
	decoded atomic.Uint64 // bytes
	limit   atomic.Int64  // memory of all decoders together
	// goroutines counts running decoders, their reads, and collections of their memory.
	goroutines sync.WaitGroup
	// steps means that decoders run only in Step.
	steps bool

	mu      sync.Mutex
	closed  bool
	all     map[*Decoder]struct{}
	byShard map[int][]*Decoder // all except those of Through
	paused  []*Decoder         // the one that has been paused the longest first
	ready   []*Decoder         // in a dry run: those that Step runs, the next one first
	held    int64              // bytes of memory
	garbage int64              // bytes of closed decoders that are left to the collector
	spare   int64              // bytes of closed decoders that are kept for the next ones
	// collecting is set during a collection. If decoders wait for memory (waiting is their number),
	// changed is closed and replaced when some may have become free.
	collecting bool
	waiting    int
	changed    chan struct{}
	// passed counts for each shard the bytes that were decoded only to get past them; warned is set
	// once there was a warning about it.
	passed map[int]int64
	warned bool
}

// openCostBytes is about what opening a decoder costs, as the number of bytes decoded in that time.
const openCostBytes = 64 << 10

// NewSet returns an empty set for an owner. places has the pieces and the records that may be asked
// for. places and owner are nil if the set is only used for Through. Memory that decoders hold is
// charged to b, with the set's lock held. now returns nanoseconds above 0.
func NewSet(o *options.Options, places *chunkmap.Map, b *budget.Budget, now func() int64, owner Owner) *Set {
	s := &Set{
		o: o, places: places, budget: b, now: now, owner: owner, blockBytes: o.RawBlockBytes(), cores: make(chan struct{}, runtime.GOMAXPROCS(0)),
		all: map[*Decoder]struct{}{}, byShard: map[int][]*Decoder{}, passed: map[int]int64{}, changed: make(chan struct{}),
	}
	s.limit.Store(o.Survey.Limits.DecoderBytes)
	s.steps = o.Dry != nil && o.Choice.Spooled == nil
	return s
}

// Allow changes the limit of the memory of all decoders together.
func (s *Set) Allow(bytes int64) { s.limit.Store(bytes) }

// Trim closes paused decoders until the memory of the others is within the limit.
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
	DecodedBytes uint64 // output of all decoders so far, needed or not
	PassedBytes  int64  // of these, what was decoded only to get past it
}

// Stats returns a snapshot.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := Stats{Open: len(s.all), HeldBytes: s.held, DecodedBytes: s.decoded.Load()}
	for _, n := range s.passed {
		x.PassedBytes += n
	}
	return x
}

// Assign assigns a load to the decoder that will reach its piece first: one that is, or will be, at
// an offset before it, or a new one at the last entry before it. It returns nil if there is no room
// for another decoder to read ahead. The set must not be closed. While the owner holds a lock that
// its methods take, the load is not completed.
func (s *Set) Assign(l *Load, u budget.Urgency) *Decoder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assign(l, u)
}

// assign is Assign with mu held.
func (s *Set) assign(l *Load, u budget.Urgency) *Decoder {
	shard, start := l.Shard, l.Layout.Start()
	var best *Decoder
	var at int64
	for _, d := range s.byShard[shard] {
		if p, ok := d.placeBefore(l); ok && (best == nil || p > at) {
			best, at = d, p
		}
	}
	entry := s.o.Index.Entry(shard, start)
	if best == nil || Enters(start, at, entry.DecodedBytes) || s.shares(best, start, entry.DecodedBytes) {
		full := len(s.all) >= s.o.Decoders || len(s.all) > 0 && s.held >= s.limit.Load()
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
		s.paused = slices.DeleteFunc(s.paused, func(x *Decoder) bool { return x == best })
		best.running = true
		best.clock.Store(s.now())
		s.start(best)
	}
	return best
}

// Enters reports whether a piece that begins at start in its decoded shard is worth another decoder
// at an entry, if there is one at the offset stands, before the piece.
func Enters(start, stands, entry int64) bool {
	return start-stands > start-entry+openCostBytes
}

// shareBytes is how far a decoder must be from a piece at least for another one to be opened for it.
const shareBytes = 2 << 20

// shares reports whether a piece that begins at start is worth a decoder of its own at an entry,
// although d will reach it: if a core is free, and the piece begins shortly after the entry, so that
// little is decoded twice.
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
	return working < cap(s.cores) && len(s.all) < s.o.Decoders && s.held < s.limit.Load()
}

// hold sets how much memory a decoder holds, and reports the change. It is called with mu held.
func (s *Set) hold(d *Decoder, bytes int64) {
	s.spare -= min(s.spare, max(0, bytes-d.held)) // its buffers are taken from these if they fit
	s.held += bytes - d.held
	s.budget.Charge(bytes - d.held)
	d.held = bytes
}

// pause pauses a decoder without loads, or closes it. It is called with mu held.
func (s *Set) pause(d *Decoder) {
	d.running = false
	s.wake()
	if d.parts && !d.member {
		s.remove(d) // another decoder can start at the next part just as well
		return
	}
	if !s.places.AnyFrom(d.shard, d.piece) {
		s.remove(d) // no needed record follows
		return
	}
	next := s.places.StartBytes(d.piece)
	d.soon = d.piece
	d.reopenBytes = openCostBytes + d.raw.memory() + next - s.o.Index.Entry(d.shard, next).DecodedBytes
	s.paused = append(s.paused, d)
	for len(s.all) > s.o.Decoders || s.held > s.limit.Load() && len(s.all) > 1 {
		if !s.closeOldest() {
			return
		}
	}
}

// closeOldest closes the decoder that has been paused the longest, and reports whether there was
// one.
func (s *Set) closeOldest() bool {
	if len(s.paused) == 0 {
		return false
	}
	s.remove(s.paused[0])
	return true
}

// mostCompared is how many paused decoders CloseCheap looks at: those that have been paused the
// longest. Callers hold locks meanwhile.
const mostCompared = 64

// CloseCheap closes a paused decoder that readers will not need soon or, if there is none, one that
// holds more bytes than would be decoded to open another one in its place; of these, the one for
// which the difference is greatest. It closes none if so much is charged to the budget that segments
// would have no more room then. It reports whether it closed one.
//
// next returns the first piece of a shard, from a piece on, that readers will need soon and that is
// neither in memory nor on its way; -1 for none. It is nil if that is not known; then all decoders
// count as needed. It is called with the set's lock held.
func (s *Set) CloseCheap(next func(shard, piece int) int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	paused := s.paused[:min(len(s.paused), mostCompared)]
	beyond, held := s.budget.Beyond(), int64(0)
	for _, d := range paused {
		held += d.held
	}
	if held <= beyond {
		return false
	}
	var best *Decoder
	most, all := int64(0), int64(0)
	for _, d := range paused {
		if next != nil && !d.neededSoon(next) {
			s.remove(d)
			return true
		}
		gain := d.held - d.reopenBytes
		all += max(gain, 0)
		if gain > most {
			best, most = d, gain
		}
	}
	if best == nil || all <= beyond {
		return false
	}
	s.remove(best)
	return true
}

// neededSoon reports whether the paused decoder is before a piece that next returns. It is called
// with Set.mu held.
func (d *Decoder) neededSoon(next func(shard, piece int) int) bool {
	p := next(d.shard, max(d.soon, d.piece)) // usually still the same
	if p < 0 && d.soon > d.piece {
		p = next(d.shard, d.piece)
	}
	d.soon = p
	return p >= 0
}

// remove removes a decoder and frees its memory. It is called with mu held.
func (s *Set) remove(d *Decoder) {
	list := slices.DeleteFunc(s.byShard[d.shard], func(x *Decoder) bool { return x == d })
	if len(list) == 0 {
		delete(s.byShard, d.shard)
	} else {
		s.byShard[d.shard] = list
	}
	delete(s.all, d)
	s.paused = slices.DeleteFunc(s.paused, func(x *Decoder) bool { return x == d })
	if d.dec != nil {
		d.dec.Close()
		d.dec = nil
	}
	d.raw.release()
	if !d.parts || d.ranges { // decoders of other parts are small, and their buffers are reused
		s.leave(d.held)
	}
	s.hold(d, 0)
	s.wake()
}

// notePassed counts bytes that a decoder decodes only to get past them. If they become too many, it
// makes that decoder log a warning once the lock is released, the first time only.
func (s *Set) notePassed(d *Decoder, bytes int64) {
	s.passed[d.shard] += bytes
	x := s.o.Index.Shard(d.shard)
	if n := s.passed[d.shard]; !s.warned && n > slowPasses*max(x.DecodedBytes, slowBytes) {
		s.warned = true
		d.complaint = n
	}
}

// complain logs the warning that notePassed asked for, if any. It is called without the lock: the
// log handler may be slow, or ask for statistics.
func (s *Set) complain(d *Decoder) {
	if n := d.complaint; n > 0 {
		d.complaint = 0
		x := s.o.Index.Shard(d.shard)
		s.o.Log.Warn("reading is slow: a compressed shard of few gzip members, zstd or lz4 frames is decoded again and again, because the order jumps about in it; use the reservoir shuffle, more memory, or uncompressed shards",
			"shard", x.Object.Path, "decoded_bytes", x.DecodedBytes, "passed_over_bytes", n)
	}
}

const (
	slowPasses = 4
	slowBytes  = 1 << 20
)

// Stop makes decoders end: their loads fail with ErrClosed. Decoders that wait for memory continue.
func (s *Set) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
}

// Close waits for decoders to end after Stop, and for their reads, and closes those that are paused.
// No Through may be in progress.
func (s *Set) Close() {
	for s.Step() {
	}
	s.goroutines.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.closeOldest() {
	}
}

// throughBytes is how much of a shard Through decodes at a time.
const throughBytes = 256 << 10

// Through decodes a whole shard from front to back, and calls write with the bytes, a buffer at a
// time, which is only valid during the call. It stores in clock when it last made progress (the
// set's now), and records its waits for storage in waits. It holds a core while it decodes.
func (s *Set) Through(shard int, clock *atomic.Int64, waits *meter.WaitClock, write func([]byte) error) error {
	d := s.whole(shard, clock, waits)
	defer s.endWhole(d)
	s.TakeCore()
	defer s.GiveCore()
	if err := d.open(); err != nil {
		return err
	}
	for buf := make([]byte, min(throughBytes, d.decoded)); d.pos < d.decoded; {
		b := buf[:min(d.decoded-d.pos, int64(len(buf)))]
		if err := d.fill(b); err != nil {
			return err
		}
		s.GiveCore() // write may be slow
		err := write(b)
		s.TakeCore()
		if err != nil {
			return err
		}
	}
	return d.endMember()
}

// whole returns a decoder of a whole shard, which takes no loads.
func (s *Set) whole(shard int, clock *atomic.Int64, waits *meter.WaitClock) *Decoder {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.newDecoder(shard, s.o.Index.Entry(shard, 0), throughBytes)
	d.raw.got, d.raw.waits = clock, waits
	d.running = true
	s.all[d] = struct{}{}
	s.hold(d, d.memory())
	return d
}

func (s *Set) endWhole(d *Decoder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(d)
}
