package scan

import (
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// mapsConfig returns the configuration for mapping pieces of shards that are files. Of the budget
// they take only their tables; as many bytes as the whole budget may be mapped besides.
func (sc *Scanner) mapsConfig() mapped.Config {
	c := mapped.Config{
		Object:     func(shard int) storage.Object { return sc.o.Index.Shard(shard).Object },
		LimitBytes: sc.o.MemoryBytes, TableLimitBytes: sc.limits.CacheBytes / 4, AllBytes: sc.o.Survey.Held.AllBytes(),
		Mapper:     sc.o.Caps.Mapper,
		LeastBytes: storage.MapBlockBytes, Patience: mapped.Patience, Log: sc.o.Log,
	}
	return c
}

// deferred is what is to be done after mu is released.
type deferred struct {
	reads []*storage.Read
	maps  mapped.Work
}

// submit does it. It may wait for system calls on open files, but neither for data nor for opening
// files.
func (sc *Scanner) submit(t *deferred) {
	sc.submitQueued(t)
	sc.maps.Do(&t.maps)
}

func (sc *Scanner) submitQueued(t *deferred) {
	if len(t.reads) > 0 {
		sc.o.Submit(t.reads)
		t.reads = t.reads[:0]
	}
}

// mapLater requests that a load's piece, of an uncompressed shard, is mapped if it is in the page
// cache. It returns false if it has to be read. It is called with mu held.
func (sc *Scanner) mapLater(ld *load, t *deferred) bool {
	l := &ld.Layout
	if len(l.Ranges) != 1 || l.Newline {
		return false
	}
	return sc.maps.Request(&t.maps, mapped.Request{
		Piece: ld.Piece, Shard: ld.Shard, OffsetBytes: l.Ranges[0].OffsetBytes, SizeBytes: l.SizeBytes, TableBytes: chunkmap.TableBytes(len(l.Spans)),
	})
}

// mapsOwner is the mapped.Owner of a scanner.
type mapsOwner struct{ sc *Scanner }

var _ mapped.Owner = mapsOwner{}

// Mapped implements mapped.Owner: the load's records are available.
func (o mapsOwner) Mapped(piece int, r *mapped.Region) {
	sc := o.sc
	sc.mu.Lock()
	defer sc.mu.Unlock()
	ld := sc.loads[piece] // it is not cancelled: see Maps.Cancel
	ld.region = r
	if sc.o.Verifier != nil && sc.checks.add(ld) {
		sc.running.Add(1) // checkRecords calls running.Done; it can't finish while mu is held
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
	if sc.closed {
		ld.err = errClosed
	}
	if ld.err != nil || !sc.alloc(ld, ld.Urgency()) {
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

// forget removes a mapped entry from the slots. It is called with mu held.
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
	o.sc.o.Note(described)
	return described
}

// memory returns the memory of a load's piece; nil if it has none yet.
func (ld *load) memory() *budget.Memory {
	switch {
	case ld.region != nil:
		return &ld.region.Memory
	case ld.seg != nil:
		return &ld.seg.Memory
	}
	return nil
}
