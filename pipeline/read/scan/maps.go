package scan

import (
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// mapsConfig is for pieces of shards that lie in files. They cost nothing of the
// budget but their tables: as much as that may be mapped beside it.
func (sc *Scanner) mapsConfig() mapped.Config {
	c := mapped.Config{
		Object:     func(shard int) storage.Object { return sc.index.Shard(shard).Object },
		LimitBytes: sc.config.MemoryBytes, TableLimitBytes: sc.limits.CacheBytes / 4, AllBytes: sc.config.Held.AllBytes(),
		LeastBytes: storage.MapBlockBytes, Patience: mapped.Patience, Log: sc.log,
	}
	if mapper, ok := sc.storage.(storage.Mapper); ok && mapper.Maps() {
		c.Mapper = mapper
	}
	return c
}

// deferred is what is to be done once mu has been released.
type deferred struct {
	reads []*storage.Read
	maps  mapped.Work
}

// submit does it. It may wait for system calls on files that are open, but
// neither for data nor for openings.
func (sc *Scanner) submit(t *deferred) {
	sc.submitQueued(t)
	sc.maps.Do(&t.maps)
}

func (sc *Scanner) submitQueued(t *deferred) {
	if len(t.reads) > 0 {
		sc.submitReads(t.reads)
		t.reads = t.reads[:0]
	}
}

// mapLater has a load's piece, of a shard that is not compressed, mapped if the page
// cache holds it, or says that it is to be read. It is called with mu held.
func (sc *Scanner) mapLater(ld *load, t *deferred) bool {
	l := &ld.layout
	if len(l.Ranges) != 1 || l.Newline {
		return false
	}
	return sc.maps.Request(&t.maps, mapped.Request{
		Piece: ld.piece, Shard: ld.shard, OffsetBytes: l.Ranges[0].OffsetBytes, SizeBytes: l.SizeBytes, TableBytes: chunkmap.TableBytes(len(l.Spans)),
	})
}

// mapsOwner is a scanner as its maps know it.
type mapsOwner struct{ sc *Scanner }

var _ mapped.Owner = mapsOwner{}

// Mapped implements mapped.Owner: the load's records are at hand.
func (o mapsOwner) Mapped(piece int, r *mapped.Region) {
	sc := o.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	ld := sc.loads[piece] // it is not taken back: see Maps.Cancel
	ld.region = r
	if sc.verifier != nil && sc.checks.add(ld) {
		sc.running.Add(1) // theirs to count down; they can't finish while mu is held
		return
	}
	sc.finishLocked(ld)
}

// Refused implements mapped.Owner: the loads' pieces are read.
func (o mapsOwner) Refused(pieces []int) {
	sc := o.sc
	var t deferred
	sc.mu.Lock()
	for _, piece := range pieces {
		sc.readInstead(sc.loads[piece], &t)
	}
	sc.mu.Unlock()
	sc.submitQueued(&t)
}

// readInstead reads a piece that was to be mapped. It is called with mu held.
func (sc *Scanner) readInstead(ld *load, t *deferred) {
	u := budget.Prefetch
	if ld.Waited() {
		u = budget.Demand
	}
	if sc.closed {
		ld.err = errClosed
	} else {
		ld.seg, ld.off, ld.err = sc.cache.alloc(ld.layout.SizeBytes, u)
	}
	if ld.err != nil {
		sc.finishLocked(ld)
	} else {
		sc.read(ld, t)
	}
}

// Forget implements mapped.Owner.
func (o mapsOwner) Forget(regions []*mapped.Region) {
	sc := o.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, r := range regions {
		if e := sc.slots.at(r.Piece()); e != nil && e.region == r {
			sc.forget(e)
		}
	}
}

// forget takes a mapped entry out of the slots. It is called with mu held.
func (sc *Scanner) forget(e *entry) {
	if live := e.liveBytes(); live > 0 && live < int64(len(e.mem.Bytes)) {
		sc.cache.remember(e)
	}
	sc.cache.hold(-e.tableBytes())
	sc.slots.set(e.piece, nil)
}

// Lost implements mapped.Owner.
func (o mapsOwner) Lost(piece, record int, err error) error {
	described := o.sc.recordError(o.sc.pieces.Starts[piece]+uint64(record), err)
	o.sc.note(described)
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
