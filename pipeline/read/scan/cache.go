package scan

import (
	"slices"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/uring"
)

// cache holds the segments. All its methods are called with Scanner.mu held.
type cache struct {
	memory
	budget *budget.Budget
	ask    func() bool // Options.Ask
	// closeDecoder closes a paused decoder that is not needed soon or is cheap to open again, and
	// reports whether there was one.
	closeDecoder func() bool
	// soon returns how many records of a piece readers will need soon; nil if that is not counted.
	soon   func(piece int) int32
	cur    *segment
	segs   []*segment // oldest first
	tables int64      // bytes of entries
	// mostTables is Limits.TableBytes.
	mostTables int64
	slots      *slots
	gone       map[int][]uint64
	dropped    uint64 // pieces that lost undelivered records
}

// alloc finds n bytes for a piece and pins their segment.
func (c *cache) alloc(n int64, u budget.Urgency) (*segment, int64, error) {
	n = max(n, 1)
	asked := false
	for {
		fits := c.cur != nil && c.cur.fits(n) && c.cur.tables < c.mostTables
		if c.excess(n, fits) > 0 {
			if !asked {
				if asked = true; c.ask() {
					continue
				}
			}
			if c.evict(u) {
				continue
			}
			if u != budget.Demand && !fits {
				return nil, 0, budget.ErrNoRoom
			}
		}
		if fits {
			if err := c.trim(c.beyond()); err != nil {
				return nil, 0, err
			}
			return c.cur, c.cur.place(n), nil
		}
		seg, err := c.newSegment(c.segmentBytes(n))
		if err != nil {
			return nil, 0, err
		}
		if n <= c.segment {
			c.cur = seg
		}
		return seg, seg.place(n), nil
	}
}

// excess returns by how much n more bytes, without any spare memory, would exceed the budget. What
// already exceeds it, because nothing could be freed for a demanded piece, counts even if the n
// bytes need no new segment.
func (c *cache) excess(n int64, fits bool) int64 {
	if fits {
		return c.beyond() - c.arena.FreeBytes()
	}
	return c.beyond() + c.grows(c.segmentBytes(n))
}

// beyond returns by how much the budget is exceeded; below 0 there is room.
func (c *cache) beyond() int64 { return c.mapped() + c.tables - c.budget.Rest() }

func (s *segment) fits(n int64) bool { return int64(len(s.Bytes))-s.next(n) >= n }

// next returns where n bytes would be placed: pieces begin at cache lines, large ones at pages.
func (s *segment) next(n int64) int64 {
	if n < budget.AlignFromBytes {
		return s.used
	}
	return (s.used + budget.PageBytes - 1) &^ (budget.PageBytes - 1)
}

// place takes n bytes, and pins the segment.
func (s *segment) place(n int64) int64 {
	off := s.next(n)
	s.used = min((off+n+63)&^63, int64(len(s.Bytes)))
	s.Pins.Add(1)
	return off
}

// newSegment returns a segment of n bytes or more. Before it maps memory, it unmaps spare memory
// for which the budget then has no room.
func (c *cache) newSegment(n int64) (*segment, error) {
	reused := c.arena.Reuses(n) > 0
	if !reused {
		if err := c.trim(c.beyond() + n); err != nil {
			return nil, err
		}
	}
	slot, err := c.take(n)
	if err != nil {
		return nil, err
	}
	c.keep()
	seg := &segment{Memory: budget.Memory{Bytes: slot.Bytes}, slot: slot}
	c.segs = append(c.segs, seg)
	if reused {
		err = c.trim(c.beyond())
	}
	return seg, err
}

// segmentBytes returns the size of a new segment for n bytes.
func (c *cache) segmentBytes(n int64) int64 { return budget.RoundToPages(max(n, c.segment)) }

// trim unmaps spare memory, the oldest first, until at least that many bytes are unmapped or there
// is none.
func (c *cache) trim(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	err := c.arena.Trim(bytes)
	c.keep()
	return err
}

// keep tells the budget how much is held.
func (c *cache) keep() { c.budget.Keep(c.mapped() + c.tables) }

// hold adds to the bytes of tables; a negative number subtracts.
func (c *cache) hold(tables int64) {
	c.tables += tables
	c.keep()
}

// evict frees one segment, or closes a decoder, and reports whether it found one. It prefers the
// oldest segment of which most was delivered, then one that is worth copying, then a paused decoder
// that is not needed soon or is cheap to open again, and at last an old segment that is not needed
// soon (leastWanted).
func (c *cache) evict(u budget.Urgency) bool {
	for _, share := range [...]int64{0, 50, 80, 100} {
		if share == 100 && c.closeDecoder() {
			return true
		}
		if share == 100 && u == budget.Opportunistic {
			return false
		}
		if share == 100 && c.soon != nil {
			if s := c.leastWanted(); s != nil && s.Pins.Kill() {
				c.clear(s, false)
				return true
			}
		}
		for _, s := range c.segs {
			if s.Live.Load()*100 <= share*s.used && s.Pins.Kill() {
				c.clear(s, share < 100)
				return true
			}
		}
	}
	return false
}

// mostCompared limits how many segments leastWanted compares, with Scanner.mu held.
const mostCompared = 64

// leastWanted returns the segment of the older half that is not pinned and of whose pieces readers
// will need the fewest records soon; of equal ones the oldest. It returns nil if all are pinned.
// Newer segments are left out, so that a reader that has stopped can't keep all memory.
func (c *cache) leastWanted() (best *segment) {
	least, compared := int64(0), 0
	for _, s := range c.segs {
		if s.Pins.Count() != 0 {
			continue
		}
		n := int64(0)
		for _, e := range s.entries {
			if c.slots.at(e.piece) == e {
				n += int64(c.soon(e.piece))
			}
		}
		if best == nil || n < least {
			best, least = s, n
		}
		if compared++; n == 0 || compared >= min((len(c.segs)+1)/2, mostCompared) {
			break
		}
	}
	return best
}

// clear frees a dead segment. With keep it first copies the undelivered records.
func (c *cache) clear(s *segment, keep bool) {
	if s == c.cur {
		c.cur = nil
	}
	n := int64(0)
	for _, e := range s.entries {
		if c.slots.at(e.piece) == e {
			n += e.liveBytes()
		}
	}
	var to *segment
	if keep && n > 0 && n <= c.mostCopied() {
		to = c.copyTarget(n)
	}
	for _, e := range s.entries {
		if c.slots.at(e.piece) != e {
			continue // another one replaced it
		}
		var kept *entry
		if to != nil {
			if kept = c.copyTo(to, e); kept != nil {
				c.attach(to, kept)
			}
		} else if e.liveBytes() > 0 {
			c.dropped++
			c.remember(e)
		}
		c.slots.set(e.piece, kept)
	}
	c.segs = slices.DeleteFunc(c.segs, func(x *segment) bool { return x == s })
	c.release(s)
}

// copiedShare limits how much is copied at a time, which takes twice the memory meanwhile.
const copiedShare = 32

// mostCopied returns how much of a segment is worth copying. What waits in a larger piece is read
// again.
func (c *cache) mostCopied() int64 { return max(c.segment, c.budget.Bytes()/copiedShare) }

// maxRemembered limits cache.gone, at about 100 bytes each.
const maxRemembered = 64 << 10

// remember notes which records of a dropped entry had been delivered. When its piece is read again
// for the others, the delivered ones are then not kept, which would make memory even shorter.
func (c *cache) remember(e *entry) {
	if len(c.gone) >= maxRemembered {
		return
	}
	c.gone[e.piece] = e.goneBits()
}

// recall marks in e the records that had been delivered when its piece was dropped. If wanted is
// one of them, it is another pass that wants it, which will want all the others: then recall marks
// none. That does not apply if wanted is lentBefore.
func (c *cache) recall(e *entry, wanted int) {
	bits := c.gone[e.piece]
	delete(c.gone, e.piece)
	if bits == nil || wanted != lentBefore && bits[wanted>>6]&(1<<(wanted&63)) != 0 {
		return
	}
	for w := range bits {
		e.out[w].Store(bits[w])
	}
}

// copyTarget returns a segment with room for n bytes, beyond the budget if necessary: the one that
// is being cleared is freed right after. More than a usual segment gets one of its own. It returns
// nil if there is no memory.
func (c *cache) copyTarget(n int64) *segment {
	if c.cur != nil && c.cur.fits(n) && c.cur.tables < c.mostTables {
		return c.cur
	}
	seg, err := c.newSegment(c.segmentBytes(n))
	if err != nil {
		return nil
	}
	if n <= c.segment {
		c.cur = seg
	}
	return seg
}

// copyTo copies the undelivered records of an entry into a segment, and returns their new entry;
// nil if there are none.
func (c *cache) copyTo(to *segment, e *entry) *entry {
	var kept *entry
	for i, s := range e.spans {
		if s.SizeBytes < 0 || e.delivered(i) {
			continue
		}
		if kept == nil {
			kept = newEntry(&to.Memory, e.piece, make([]chunkmap.Span, len(e.spans)))
			kept.whole = false
			kept.bad = e.bad
			kept.spooled, kept.ordinal = e.spooled, e.ordinal
			for w := range e.out {
				kept.out[w].Store(e.out[w].Load())
			}
			for j := range kept.spans {
				kept.spans[j].SizeBytes = -1
			}
		}
		if !c.dry {
			copy(to.Bytes[to.used:], e.mem.Bytes[s.OffsetBytes:s.OffsetBytes+s.SizeBytes])
		}
		kept.spans[i] = chunkmap.Span{OffsetBytes: to.used, SizeBytes: s.SizeBytes}
		to.used += s.SizeBytes
		to.Live.Add(s.SizeBytes)
	}
	return kept
}

// attach adds an entry to its segment.
func (c *cache) attach(s *segment, e *entry) {
	s.entries = append(s.entries, e)
	s.tables += e.tableBytes()
	c.hold(e.tableBytes())
}

func (c *cache) release(s *segment) {
	c.hold(-s.tables)
	c.give(s.slot)
	s.Bytes, s.slot, s.entries, s.tables = nil, nil, nil, 0
}

// shrink frees segments until the budget, which was lowered, is met again, or nothing more can be
// freed.
func (c *cache) shrink() {
	for c.excess(0, true) > 0 {
		if !c.evict(budget.Prefetch) {
			break
		}
	}
	_ = c.trim(c.beyond()) // what could not be unmapped stays held
}

// close frees all memory, except segments that are still pinned: a leak is better than records that
// change.
func (c *cache) close() error {
	for _, s := range c.segs {
		for _, e := range s.entries {
			if c.slots.at(e.piece) == e {
				c.slots.set(e.piece, nil)
			}
		}
		if s.Pins.Kill() {
			c.release(s)
		}
	}
	c.segs, c.cur = nil, nil
	err := c.arena.Close()
	c.keep()
	return err
}

// slots has the entry of each piece that is in memory. Lookups take no lock; changes are made with
// Scanner.mu held.
type slots struct {
	entries []atomic.Pointer[entry]
	missing atomic.Int64 // pieces that are wanted and not whole in memory
}

// newSlots returns slots for the given number of pieces, of which some are wanted.
func newSlots(pieces, wanted int) *slots {
	s := &slots{entries: make([]atomic.Pointer[entry], pieces)}
	s.missing.Store(int64(wanted))
	return s
}

func (s *slots) at(piece int) *entry { return s.entries[piece].Load() }

// set replaces the entry of a piece by e (nil for none).
func (s *slots) set(piece int, e *entry) {
	old := s.entries[piece].Swap(e)
	if old != nil && old.whole {
		s.missing.Add(1)
	}
	if e != nil && e.whole {
		s.missing.Add(-1)
	}
}

// has reports whether record i of a piece is in memory.
func (s *slots) has(piece, i int) bool {
	e := s.at(piece)
	return e != nil && e.spans[i].SizeBytes >= 0
}

// segment is memory that holds pieces one after the other.
//
// It is pinned by loads and budget.Records that use its bytes. A segment that is not pinned may be
// killed: its memory returns to the cache, and the struct stays valid for remaining pointers to it.
type segment struct {
	budget.Memory
	slot    *uring.Slot // that has the bytes; nil once it was freed
	used    int64       // guarded by Scanner.mu
	entries []*entry    // guarded by Scanner.mu
	tables  int64       // bytes of entries, guarded by Scanner.mu
}

// entry is a piece in memory, or what is left of one: where each record is in its segment or
// region. It is immutable except for the bits.
type entry struct {
	mem    *budget.Memory // of a segment, or of region
	region *mapped.Region // nil if the entry is not in a mapped file
	piece  int
	spans  []chunkmap.Span
	whole  bool            // has all records of the piece that are in the part
	bad    map[int]error   // records that failed their checksum
	out    []atomic.Uint64 // one bit per record: delivered

	// If the shard is spooled, its place in the spool is told which records were delivered.
	spooled *decode.Place
	ordinal uint64 // of the first record in the shard
}

func newEntry(mem *budget.Memory, piece int, spans []chunkmap.Span) *entry {
	return &entry{mem: mem, piece: piece, spans: spans, whole: true, out: make([]atomic.Uint64, (len(spans)+63)/64)}
}

// mapped reports whether the entry is in a mapped file.
func (e *entry) mapped() bool { return e.region != nil }

// tableBytes returns the memory of the entry itself.
func (e *entry) tableBytes() int64 { return chunkmap.TableBytes(len(e.spans)) }

func (e *entry) delivered(i int) bool { return e.out[i>>6].Load()&(1<<(i&63)) != 0 }

// goneBits returns one bit per record: it was delivered.
func (e *entry) goneBits() []uint64 {
	bits := make([]uint64, len(e.out))
	for w := range bits {
		bits[w] = e.out[w].Load()
	}
	return bits
}

// deliver notes that record i was delivered, and returns false if it already had been.
func (e *entry) deliver(i int) bool {
	w, bit := &e.out[i>>6], uint64(1)<<(i&63)
	if w.Load()&bit != 0 || w.Or(bit)&bit != 0 {
		return false
	}
	e.mem.Live.Add(-e.spans[i].SizeBytes)
	if e.spooled != nil {
		e.spooled.GoneOut(e.ordinal + uint64(i))
	}
	return true
}

// renew makes all records wanted again if all were delivered: another epoch has reached the piece.
// It is called with Scanner.mu held.
func (e *entry) renew() {
	if e.liveBytes() > 0 {
		return
	}
	for w := range e.out {
		e.out[w].Store(0)
	}
	e.mem.Live.Add(e.liveBytes())
}

// bytes returns record i. The entry's memory must be pinned.
func (e *entry) bytes(i int) []byte {
	s := e.spans[i]
	return e.mem.Bytes[s.OffsetBytes : s.OffsetBytes+s.SizeBytes : s.OffsetBytes+s.SizeBytes]
}

// liveBytes returns the bytes of the entry's undelivered records.
func (e *entry) liveBytes() int64 {
	n := int64(0)
	for i, s := range e.spans {
		if s.SizeBytes >= 0 && !e.delivered(i) {
			n += s.SizeBytes
		}
	}
	return n
}

// memory allocates segments. Released memory becomes spare, and is reused: the kernel has to clear
// new pages, which costs a third of what it costs to read them from a service. Spare memory counts
// as held until it is unmapped. All methods are called with Scanner.mu held.
type memory struct {
	arena    *uring.Arena
	segment  int64        // bytes of a usual segment
	released func([]byte) // tests overwrite released memory
	dry      bool         // Options.Dry: no byte is touched
}

// newMemory returns memory for usual segments of that many bytes. These reuse only spare memory of
// exactly their size; larger ones, for chunks that differ little in size, also what is a little
// longer.
func newMemory(segment int64, released func([]byte), dry bool) memory {
	return memory{
		arena:   uring.NewArena(uring.ArenaConfig{BoundBytes: 1 << 62, LooseFrom: budget.RoundToPages(segment) + 1}), // the cache calls Trim
		segment: segment, released: released, dry: dry,
	}
}

// mapped returns how many bytes are held, including spare memory.
func (m *memory) mapped() int64 { return m.arena.MappedBytes() }

// grows returns by how many bytes the held memory would grow if n bytes were taken and all other
// spare memory were unmapped.
func (m *memory) grows(n int64) int64 {
	if size := m.arena.Reuses(n); size > 0 {
		return size - m.arena.FreeBytes()
	}
	return n - m.arena.FreeBytes()
}

// take returns n bytes or more.
func (m *memory) take(n int64) (*uring.Slot, error) { return m.arena.Take(n, true) }

// give takes memory back, which is spare from then on.
func (m *memory) give(s *uring.Slot) {
	if m.released != nil {
		m.released(s.Bytes)
	}
	_ = m.arena.Give(s) // it unmaps nothing
}
