package fetch

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/mapped"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// load is a piece on its way into memory, shared by all who want it.
type load struct {
	piece   int
	shard   int
	layout  layout
	wanted  int   // the record of the piece for which it was started
	started int64 // Fetcher.now
	// clock, when set, is when the decoder that brings the piece last got on.
	clock *atomic.Int64
	// via, when set, are the waits of that decoder. It is written with
	// Fetcher.mu held.
	via *meter.Ledger

	// Written before done is closed, read after.
	done  chan struct{}
	entry *entry // pinned once for each waiter
	err   error
	bad   map[int]error // records that failed their checksum

	// With Fetcher.mu held.
	waiters int
	readers []*Reader // that will come to it: see callOff
	decoder *decoder  // that brings it, nil where it is read
	ahead   bool      // its cost is in Fetcher.aheadOut

	stage   atomic.Uint32
	seg     *segment       // nil where it is not to be read, or not yet
	off     int64          // in seg
	region  *mapped.Region // where it is mapped instead
	pending atomic.Int32   // reads under way
	failed  atomic.Pointer[error]
	spooled *spooled // it is read from there
	damaged bool     // it was, and did not come back as it was written; with Fetcher.mu held
}

// layout says which ranges of a decoded shard a piece is made of, and where
// its records are once these lie one after the other.
type layout struct {
	ranges []byteRange
	spans  []span // offsets from the piece's first byte; a size of -1: not of the part
	size   int64  // of all ranges
	// newline is set when the last byte is not in the shard: a last line's
	// missing newline.
	newline bool
	// reach is where the piece that follows in the shard begins, if that is
	// before this one's end because their records overlap; else this one's end.
	reach int64
}

type byteRange struct{ off, size int64 }

// cost is what it takes of the memory.
func (l *layout) cost() int64 { return l.size + tableBytes(len(l.spans)) }

func (l *layout) start() int64 { return l.ranges[0].off }
func (l *layout) end() int64   { r := l.ranges[len(l.ranges)-1]; return r.off + r.size }

// reads cuts the ranges into the reads that a storage likes: a range that is
// too large for one becomes several of about the same size, to be under way
// at the same time.
func (l *layout) reads(p profile.Profile, read func(byteRange)) {
	for _, r := range l.ranges {
		for end := r.off + r.size; r.off < end; {
			n := end - r.off
			if n > p.ReadBytes {
				parts := (n-1)/p.ReadBytes + 1
				part := (n-1)/parts + 1
				part = (part + p.AlignBytes - 1) &^ (p.AlignBytes - 1)
				n = (r.off+part)&^(p.AlignBytes-1) - r.off
			}
			read(byteRange{r.off, n})
			r.off += n
		}
	}
}

// layoutOf lays out a piece's records, as far as they are of the part, of which
// there must be some. Bytes between records come along, but for large gaps. Of
// shards that are spooled it has whole blocks, which are what is checked.
func (f *Fetcher) layoutOf(piece int) (int, layout) {
	n := f.pieces.records(piece)
	numbers, extents := make([]uint64, n), make([]catalog.Extent, n)
	for i := range numbers {
		numbers[i] = f.pieces.starts[piece] + uint64(i)
	}
	f.index.Extents(numbers, extents)
	shard := extents[0].Shard
	gap := int64(decodedGapBytes)
	if f.index.Shard(shard).Codec == nil {
		gap = f.config.Storage.GapBytes
	}
	wide := f.newWidener(shard, piece)
	l := layout{spans: make([]span, n)}
	base := int64(0) // of the ranges before the last
	for i, x := range extents {
		if !f.part.Has(numbers[i]) {
			l.spans[i].size = -1
			continue
		}
		if len(l.ranges) == 0 || x.OffsetBytes-l.end() > gap {
			base = l.size
			l.ranges = append(l.ranges, byteRange{off: wide.from(x.OffsetBytes)})
		}
		r := &l.ranges[len(l.ranges)-1]
		if end := x.OffsetBytes + x.SizeBytes; end > r.off+r.size {
			r.size = wide.to(end) - r.off
		}
		l.spans[i] = span{base + x.OffsetBytes - r.off, x.SizeBytes}
		l.size = base + r.size
	}
	if l.end() > f.index.Shard(shard).DecodedBytes {
		l.ranges[len(l.ranges)-1].size--
		l.newline = true
	}
	l.reach = l.end()
	if s := f.index.Shard(shard); f.pieces.starts[piece+1] < s.First+s.Records {
		l.reach = min(l.reach, f.pieceStart(piece+1))
	}
	if f.index.Shard(shard).Codec == nil {
		l.align(f.index.Shard(shard).Object.SizeBytes)
	}
	return shard, l
}

const (
	pageBytes = 4096
	// alignFrom is how large a piece is that is read from the beginning of a
	// page to the end of one: into memory that is aligned as well, a read that
	// bypasses the page cache then needs no copy.
	alignFrom = 64 << 10
)

// align extends a large range to whole pages of its object.
func (l *layout) align(objectBytes int64) {
	if len(l.ranges) != 1 || l.size < alignFrom {
		return
	}
	r := &l.ranges[0]
	behind := l.size - r.size // a newline
	lead := r.off % pageBytes
	end := min((r.off+r.size+pageBytes-1)&^(pageBytes-1), objectBytes)
	*r = byteRange{r.off - lead, end - r.off + lead}
	for i := range l.spans {
		l.spans[i].off += lead
	}
	l.size = r.size + behind
}

// start begins to load a piece that is neither in memory nor on its way. It is
// called with mu held; what it adds to t is to be carried out after mu has been
// released. nil means that there is no room to read ahead.
func (f *Fetcher) start(piece, wanted int, u budget.Urgency, t *todo) *load {
	shard, l := f.layoutOf(piece)
	if u == budget.Ahead && f.aheadOut > 0 && f.aheadOut+l.cost() > f.limits.inFlight {
		return nil
	}
	ld := &load{piece: piece, shard: shard, layout: l, wanted: wanted, started: f.now(), done: make(chan struct{})}
	err := f.broken[shard]
	if f.closed {
		err = errClosed
	}
	if err == nil && f.spools(shard) && !f.avoids(shard) {
		if !f.assignSpool(ld, u) {
			return nil
		}
		err = ld.err
	} else if err == nil && f.index.Shard(shard).Codec != nil {
		if !f.assign(ld, u) {
			return nil
		}
	} else if err == nil && !f.mapLater(ld, t) {
		if ld.seg, ld.off, err = f.cache.alloc(l.size, u); err == budget.ErrNoRoom {
			return nil
		}
	}
	if err != nil {
		ld.err = err
		close(ld.done)
		return ld
	}
	f.loads[piece] = ld
	if u == budget.Ahead {
		ld.ahead = true
		f.aheadOut += l.cost()
	}
	if ld.seg != nil && ld.spooled == nil {
		f.read(ld, t)
	}
	return ld
}

// read makes the reads of a piece of a shard that is not compressed.
func (f *Fetcher) read(ld *load, t *todo) {
	object := f.index.Shard(ld.shard).Object
	done := func(err error) {
		f.meter.Reading.End()
		if err != nil {
			ld.failed.CompareAndSwap(nil, &err)
		}
		if ld.pending.Add(-1) == 0 {
			f.arrived(ld)
		}
	}
	to := ld.off
	ld.pending.Store(1) // for this function
	ld.layout.reads(f.config.Storage, func(r byteRange) {
		ld.pending.Add(1)
		t.reads = append(t.reads, &storage.Read{Object: object, OffsetBytes: r.off, Buf: ld.seg.Bytes[to : to+r.size : to+r.size], Wanted: ld.begin, Done: done})
		to += r.size
		ld.stage.Store(isQueued)
	})
	f.running.Add(1)
	if ld.pending.Add(-1) == 0 {
		go f.arrived(ld) // nothing to read: a lone newline
	}
}

// arrived goes on with a load whose reads have ended. It must not block.
func (f *Fetcher) arrived(ld *load) {
	if !ld.begin() {
		ld.seg.Pins.Unpin() // storage has no part in its memory any more
		f.running.Done()
		return
	}
	err := ld.failed.Load()
	switch {
	case err != nil && ld.spooled != nil:
		f.lostInSpool(ld, *err)
	case err != nil:
		ld.err = *err
		f.finish(ld)
	case (f.verifier != nil || ld.spooled != nil && ld.layout.size > checkedAtOnce) && f.checks.add(ld):
		return // running is theirs to count down
	default:
		f.checkAndFinish(ld)
	}
	f.running.Done()
}

// checkedAtOnce is how much is checked by those who have read it, in some 100 µs:
// what is more is left to others.
const checkedAtOnce = 1 << 20

// checkAndFinish looks at all checksums that there are of a load's bytes, which have
// come. Others may do it.
func (f *Fetcher) checkAndFinish(ld *load) {
	if ld.spooled != nil {
		if err := f.readBack(ld); err != nil {
			f.lostInSpool(ld, err)
			return
		}
	}
	ld.addNewline()
	f.verify(ld)
	f.finish(ld)
}

func (ld *load) addNewline() {
	if ld.layout.newline {
		ld.seg.Bytes[ld.off+ld.layout.sizeInShard()] = '\n'
	}
}

// sizeInShard is the size without a newline that the shard does not have.
func (l *layout) sizeInShard() int64 {
	if l.newline {
		return l.size - 1
	}
	return l.size
}

// verify looks at the records' own checksums.
func (f *Fetcher) verify(ld *load) {
	switch {
	case f.verifier == nil:
	case ld.region != nil:
		ld.err = ld.region.Verify(func() bool { f.verifyRecords(ld); return len(ld.bad) == 0 })
	default:
		f.verifyRecords(ld)
	}
}

func (f *Fetcher) verifyRecords(ld *load) {
	mem := ld.memory().Bytes[ld.off:]
	for i, s := range ld.layout.spans {
		if s.size < 0 {
			continue
		}
		if err := f.verifier.Verify(mem[s.off : s.off+s.size]); err != nil {
			if ld.bad == nil {
				ld.bad = map[int]error{}
			}
			ld.bad[i] = err
		}
	}
}

// finish makes a load's piece, or its error, known to all who wait.
func (f *Fetcher) finish(ld *load) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finishLocked(ld)
}

func (f *Fetcher) finishLocked(ld *load) {
	delete(f.loads, ld.piece)
	if ld.ahead {
		f.aheadOut -= ld.layout.cost()
	}
	if ld.err == nil {
		ld.err = f.broken[ld.shard]
	}
	if ld.err == nil {
		f.publish(ld)
	} else if ld.err != budget.ErrNoRoom && ld.err != errClosed && ld.err != errCalledOff {
		f.failures.add(f.describe(ld))
	}
	if mem := ld.memory(); mem != nil && ld.stage.Load() != calledOff {
		mem.Pins.Unpin()
	}
	close(ld.done)
}

// publish puts a load's piece where readers find it, who take no lock: what is
// told of it is told before, so that nobody has bytes, or an error, that the
// statistics do not know of yet.
func (f *Fetcher) publish(ld *load) {
	f.tell(ld)
	spans := ld.layout.spans
	for i := range spans {
		spans[i].off += ld.off
	}
	e := newEntry(ld.memory(), ld.piece, spans)
	e.region, e.bad = ld.region, ld.bad
	e.spooled, e.ordinal = ld.spooled, f.ordinal(ld)
	f.cache.recall(e, ld.wanted)
	if old := f.slots.at(ld.piece); old != nil {
		old.mem.Live.Add(-old.liveBytes())
	}
	e.mem.Live.Add(e.liveBytes())
	e.mem.Pins.Add(int64(ld.waiters))
	if e.mapped() {
		f.cache.tables += e.tableBytes() // until it is forgotten
	} else {
		f.cache.attach(ld.seg, e)
	}
	ld.entry = e
	f.slots.set(ld.piece, e)
}

// tell counts what a load has brought.
func (f *Fetcher) tell(ld *load) {
	for _, err := range ld.bad {
		f.failures.add(fmt.Errorf("%s: %w", f.index.Shard(ld.shard).Object.Path, err))
	}
	if ld.region != nil {
		return // mapped: nothing was read
	}
	f.counts.piecesRead.Add(1)
	f.counts.bytesRead.Add(uint64(ld.layout.size))
	w, bit := &f.everRead[ld.piece>>6], uint64(1)<<(ld.piece&63)
	if *w&bit != 0 {
		f.counts.piecesReread.Add(1)
	}
	*w |= bit
}

// describe names the shard where the error does not.
func (f *Fetcher) describe(ld *load) error {
	if _, ok := errors.AsType[*storage.Error](ld.err); ok {
		return ld.err
	}
	return fmt.Errorf("%s: bytes [%d, %d): %w", f.index.Shard(ld.shard).Object.Path, ld.layout.start(), ld.layout.end(), ld.err)
}
