package fetch

import (
	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/mapped"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// mapsConfig is for pieces of shards that lie in files. They cost nothing of the
// budget but their tables: as much as that may be mapped beside it.
func (f *Fetcher) mapsConfig() mapped.Config {
	c := mapped.Config{
		Object:     func(shard int) storage.Object { return f.index.Shard(shard).Object },
		LimitBytes: f.config.MemoryBytes, TableLimitBytes: f.limits.cache / 4, AllBytes: f.held.bytes,
		LeastBytes: storage.MapBlockBytes, Patience: mapped.Patience, Log: f.log,
	}
	if mapper, ok := f.storage.(storage.Mapper); ok && mapper.Maps() {
		c.Mapper = mapper
	}
	return c
}

// todo is what is to be done once mu has been released.
type todo struct {
	reads []*storage.Read
	maps  mapped.Work
}

// carryOut does it. It may wait for system calls on files that are open, but
// neither for data nor for openings.
func (f *Fetcher) carryOut(t *todo) {
	f.submit(t)
	f.maps.Do(&t.maps)
}

func (f *Fetcher) submit(t *todo) {
	if len(t.reads) > 0 {
		f.submitReads(t.reads)
		t.reads = t.reads[:0]
	}
}

// mapLater has a load's piece, of a shard that is not compressed, mapped if the page
// cache holds it, or says that it is to be read. It is called with mu held.
func (f *Fetcher) mapLater(ld *load, t *todo) bool {
	l := &ld.layout
	if len(l.ranges) != 1 || l.newline {
		return false
	}
	return f.maps.Request(&t.maps, mapped.Request{
		Piece: ld.piece, Shard: ld.shard, OffsetBytes: l.ranges[0].off, SizeBytes: l.size, TableBytes: tableBytes(len(l.spans)),
	})
}

// mapsOwner is a fetcher as its maps know it.
type mapsOwner struct{ f *Fetcher }

var _ mapped.Owner = mapsOwner{}

// Mapped implements mapped.Owner: the load's records are at hand.
func (o mapsOwner) Mapped(piece int, r *mapped.Region) {
	f := o.f
	f.mu.Lock()
	defer f.mu.Unlock()
	ld := f.loads[piece] // it is not taken back: see Maps.Cancel
	ld.region = r
	if f.verifier != nil && f.checks.add(ld) {
		f.running.Add(1) // theirs to count down; they can't finish while mu is held
		return
	}
	f.finishLocked(ld)
}

// Refused implements mapped.Owner: the loads' pieces are read.
func (o mapsOwner) Refused(pieces []int) {
	f := o.f
	var t todo
	f.mu.Lock()
	for _, piece := range pieces {
		f.readInstead(f.loads[piece], &t)
	}
	f.mu.Unlock()
	f.submit(&t)
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

// Forget implements mapped.Owner.
func (o mapsOwner) Forget(regions []*mapped.Region) {
	f := o.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range regions {
		if e := f.slots.at(r.Piece()); e != nil && e.region == r {
			f.forget(e)
		}
	}
}

// forget takes a mapped entry out of the slots. It is called with mu held.
func (f *Fetcher) forget(e *entry) {
	if live := e.liveBytes(); live > 0 && live < int64(len(e.mem.Bytes)) {
		f.cache.remember(e)
	}
	f.cache.tables -= e.tableBytes()
	f.slots.set(e.piece, nil)
}

// Lost implements mapped.Owner.
func (o mapsOwner) Lost(piece, record int, err error) error {
	described := o.f.recordError(o.f.pieces.starts[piece]+uint64(record), err)
	o.f.note(described)
	return described
}

// memory is where a load's piece lies, or will; nil: that is not known yet.
func (ld *load) memory() *budget.Memory {
	switch {
	case ld.region != nil:
		return &ld.region.Memory
	case ld.seg != nil:
		return &ld.seg.Memory
	}
	return nil
}
