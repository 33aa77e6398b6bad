package fetch

import (
	"errors"
	"runtime/debug"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// todo is what is to be done once mu has been released.
type todo struct {
	reads  []*storage.Read
	shards []*mappedShard // to be mapped
	maps   []*load        // of shards that are
}

// carryOut does it. It may wait for system calls on files that are open, but
// neither for data nor for openings.
func (f *Fetcher) carryOut(t *todo) {
	f.submit(t)
	for _, s := range t.shards {
		f.mapShard(s)
	}
	t.shards = t.shards[:0]
	for _, ld := range t.maps {
		f.mapPiece(ld, t)
	}
	t.maps = t.maps[:0]
	f.submit(t)
}

func (f *Fetcher) submit(t *todo) {
	if len(t.reads) > 0 {
		f.submitReads(t.reads)
		t.reads = t.reads[:0]
	}
}

// mappable says whether a piece of a shard that is not compressed is to be
// mapped, if the page cache holds it. It is called with mu held.
func (f *Fetcher) mappable(ld *load) bool {
	m, l := &f.maps, &ld.layout
	if m.mapper == nil || l.size < m.least || len(l.ranges) != 1 || l.newline || m.never[ld.shard] {
		return false
	}
	if blocksAround(l.ranges[0]) > m.limit || tableBytes(len(l.spans)) > m.tableLimit {
		return false
	}
	if s := m.shards[ld.shard]; s != nil && s.late {
		return false // it is being opened, since long
	}
	if m.skip > 0 {
		m.skip--
		return false
	}
	return true
}

// mapLater has a load's piece mapped: at once where its shard is mapped, else when
// it is. It is called with mu held.
func (f *Fetcher) mapLater(ld *load, t *todo) {
	m := &f.maps
	s := m.shards[ld.shard]
	if s == nil {
		s = &mappedShard{shard: ld.shard}
		m.shards[ld.shard] = s
		t.shards = append(t.shards, s)
	}
	s.users++
	if s.mapping != nil {
		t.maps = append(t.maps, ld)
	} else {
		s.waiting = append(s.waiting, ld)
	}
}

// blocksAround is the most that is mapped for a range.
func blocksAround(r byteRange) int64 {
	const block = storage.MapBlockBytes
	return (r.off+r.size+block-1)/block*block - r.off/block*block
}

// mapPiece maps a load's piece, a user of its shard's mapping; where the page cache
// does not hold it, it is read.
func (f *Fetcher) mapPiece(ld *load, t *todo) {
	seg := f.populate(ld)
	f.mu.Lock()
	defer f.mu.Unlock()
	if seg == nil {
		f.readInstead(ld, t)
		return
	}
	f.maps.segs = append(f.maps.segs, seg)
	ld.seg = seg
	if f.verifier != nil && f.checks.add(ld) {
		f.running.Add(1) // theirs to count down; they can't finish while mu is held
		return
	}
	f.finishLocked(ld)
}

// readInstead reads a piece that was to be mapped. It is called with mu held.
func (f *Fetcher) readInstead(ld *load, t *todo) {
	u := budget.Ahead
	if ld.waiters > 0 {
		u = budget.Demanded
	}
	if f.closed {
		ld.err = errClosed
	} else {
		ld.seg, ld.off, ld.err = f.cache.alloc(ld.layout.size, u)
	}
	if ld.err != nil {
		f.finishLocked(ld)
	} else {
		f.read(ld, t)
	}
}

// populate makes a load's piece a segment of its shard's mapping, pinned, or
// gives nil, and then it is a user no more.
func (f *Fetcher) populate(ld *load) *segment {
	m, r := &f.maps, ld.layout.ranges[0]
	most, tables := blocksAround(r), tableBytes(len(ld.layout.spans))
	f.mu.Lock()
	shard := m.shards[ld.shard] // it stays while it has users
	ok := f.reserve(most, tables)
	if !ok {
		shard.users-- // sweeps have found nothing: all is lent, at this moment
		f.mu.Unlock()
		return nil
	}
	f.mu.Unlock()
	seg := &segment{off: r.off, used: r.size, shard: shard}
	seg.seen.Store(m.mapper.Evictions())
	seg.Pins.Reset(1)
	added, ok := shard.mapping.Populate(r.off, r.size)
	if ok && m.trims {
		shard.mapping.Trim(r.off, r.size)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m.coming -= most
	m.bytes += added
	if ok {
		m.skip, m.skips = 0, 0
		seg.Bytes = shard.mapping.Bytes()[r.off : r.off+r.size : r.off+r.size]
		return seg
	}
	m.tables -= tables
	shard.users--
	m.skips = min(max(2*m.skips, 1), maxSkips)
	m.skip = m.skips
	return nil
}

// pinMapped pins an entry of a mapping, unless it has been unmapped, or is not
// all in the page cache any more: to touch it would then wait for a disk, and
// hold a processor.
func (f *Fetcher) pinMapped(e *entry, evictions uint64) bool {
	s := e.seg
	if !s.Pins.Pin() {
		return false
	}
	if s.seen.Load() == evictions {
		return true
	}
	if s.shard.mapping.Resident(s.off, int64(len(s.Bytes))) {
		s.seen.Store(evictions)
		return true
	}
	f.mu.Lock()
	f.forget(e)
	f.mu.Unlock()
	s.Pins.Unpin()
	return false
}

// errFault is wrapped when mapped memory could not be read, though the file is
// what it was.
var errFault = errors.New("what is mapped of it can't be read: perhaps its disk fails")

// lost gives the error for a record of a mapped piece of which err is known,
// after which the piece, or, if the shard has changed, none of the shard, is
// mapped any more.
func (f *Fetcher) lost(x mappedRecord, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(x.entry)
	if errors.Is(err, storage.ErrChanged) {
		f.refuse(x.entry.seg.shard.shard)
	}
	described := f.recordError(f.pieces.starts[x.entry.piece]+uint64(x.index), err)
	f.failures.add(described)
	return described
}

// fault is the error for a piece whose memory was gone.
func (f *Fetcher) fault(s *segment) error {
	return &storage.Error{Object: f.index.Shard(s.shard.shard).Object.Path, OffsetBytes: s.off, SizeBytes: int64(len(s.Bytes)), Err: errFault}
}

// Faulted runs what touches mapped memory, and says whether that was gone: the
// goroutine then gets a panic, not the process a signal. Other panics go on.
func Faulted(touch func()) (gone bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if !storage.IsFault(p) {
			panic(p) // our own mistake
		}
		gone = true
	}()
	touch()
	return false
}

// verifyMapped is verify for a piece that is mapped. What is wrong with it may be
// that its shard has changed.
func (f *Fetcher) verifyMapped(ld *load) {
	gone := Faulted(func() { f.verifyRecords(ld) })
	if !gone && len(ld.bad) == 0 {
		return
	}
	if ld.err = ld.seg.shard.mapping.Check(); ld.err == nil && gone {
		ld.err = f.fault(ld.seg)
	}
	if errors.Is(ld.err, storage.ErrChanged) {
		f.mu.Lock()
		f.refuse(ld.shard)
		f.mu.Unlock()
	}
}
