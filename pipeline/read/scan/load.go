package scan

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// load is a piece on its way into memory, shared by all readers that need it.
type load struct {
	// Load is what decoders and the spool know of it, if its shard is compressed. Waiters is changed
	// with Scanner.mu held.
	decode.Load
	wanted  int   // the record of the piece for which it was started, or lentBefore
	started int64 // Scanner.now

	// Written before done is closed, read after.
	done  chan struct{}
	entry *entry // pinned once for each waiter
	err   error
	bad   map[int]error // records that failed their checksum

	// Guarded by Scanner.mu.
	readers []*Reader // that will need it: see cancel
	ahead   bool      // its cost is in Scanner.aheadOut
	damaged bool      // it was read from the spool, and differed from what was written

	stage   atomic.Uint32
	seg     *segment       // nil if it is not to be read, or not yet
	off     int64          // in seg
	region  *mapped.Region // if it is mapped instead
	pending atomic.Int32   // reads in progress
	failed  atomic.Pointer[error]
}

// newLoad returns a load that is not yet in Scanner.loads.
func (sc *Scanner) newLoad(piece, shard int, l chunkmap.Layout) *load {
	return &load{Load: decode.Load{Piece: piece, Shard: shard, Layout: l}, started: sc.now(), done: make(chan struct{})}
}

// alloc finds memory for a load. Its error, if any, is the load's. It is called with mu held.
func (sc *Scanner) alloc(ld *load, u budget.Urgency) (ok bool) {
	if ld.seg, ld.off, ld.err = sc.cache.alloc(ld.Layout.SizeBytes, u); ld.err != nil {
		return false
	}
	ld.Memory = ld.seg.Bytes[ld.off : ld.off+ld.Layout.SizeBytes]
	return true
}

// ordinal returns the position of a load's first record in its shard.
func (sc *Scanner) ordinal(ld *load) uint64 {
	return sc.pieces.Starts[ld.Piece] - sc.o.Index.Shard(ld.Shard).First
}

// isDone reports whether the load has completed or failed.
func (ld *load) isDone() bool {
	select {
	case <-ld.done:
		return true
	default:
		return false
	}
}

// lentBefore is the wanted record if it may have been delivered in the same pass, and its piece is
// needed again; and if a piece is kept in passing, so that no record of it was asked for.
const lentBefore = -1

// wantedBy returns load.wanted for record i of a piece.
func wantedBy(i int, again bool) int {
	if again {
		return lentBefore
	}
	return i
}

// start begins to load a piece that is neither in memory nor on its way. It is called with mu held;
// what it adds to t has to be submitted after mu is released. It returns nil if there is no room to
// read ahead.
func (sc *Scanner) start(piece, wanted int, u budget.Urgency, t *deferred) *load {
	shard, l, _ := sc.layoutOf(piece) // the reader's phase has a record in it
	if u == budget.Prefetch && sc.aheadOut > 0 && sc.aheadOut+l.CostBytes() > min(sc.limits.InFlightBytes, sc.budget.Bytes()/4) {
		return nil
	}
	ld := sc.newLoad(piece, shard, l)
	ld.wanted = wanted
	err := sc.broken[shard]
	if sc.closed {
		err = errClosed
	}
	if err == nil && sc.o.Choice.Spools(shard) && !sc.spool.Avoids(shard) {
		if !sc.assignSpool(ld, u) {
			return nil
		}
		err = ld.err
	} else if err == nil && sc.o.Index.Shard(shard).Codec != nil {
		if sc.decoders.Assign(&ld.Load, u) == nil {
			return nil
		}
	} else if err == nil && !sc.mapLater(ld, t) {
		if !sc.alloc(ld, u) && ld.err == budget.ErrNoRoom {
			return nil
		}
		err = ld.err
	}
	if err != nil {
		ld.err = err
		close(ld.done)
		return ld
	}
	sc.loads[piece] = ld
	if u == budget.Prefetch {
		ld.ahead = true
		sc.aheadOut += l.CostBytes()
	}
	if ld.seg != nil && ld.Place == nil {
		sc.read(ld, t)
	}
	return ld
}

// read makes the reads of a piece of an uncompressed shard.
func (sc *Scanner) read(ld *load, t *deferred) {
	object := sc.o.Index.Shard(ld.Shard).Object
	done := func(err error) {
		sc.o.Meter.Reading.End()
		if err != nil {
			ld.failed.CompareAndSwap(nil, &err)
		}
		if ld.pending.Add(-1) == 0 {
			sc.arrived(ld)
		}
	}
	to := ld.off
	ld.pending.Store(1) // for this function
	sc.eachRead(&ld.Layout, func(r chunkmap.Range) {
		ld.pending.Add(1)
		t.reads = append(t.reads, &storage.Read{Object: object, OffsetBytes: r.OffsetBytes, Buf: ld.seg.Bytes[to : to+r.SizeBytes : to+r.SizeBytes], Wanted: ld.begin, Done: done})
		to += r.SizeBytes
		ld.stage.Store(isQueued)
	})
	sc.running.Add(1)
	if ld.pending.Add(-1) == 0 {
		go sc.arrived(ld) // nothing to read: a lone newline
	}
}

// arrived continues a load whose reads have ended. It must not block.
func (sc *Scanner) arrived(ld *load) {
	if !ld.begin() {
		ld.seg.Pins.Unpin() // storage no longer uses its memory
		sc.running.Done()
		return
	}
	err := ld.failed.Load()
	switch {
	case err != nil && ld.Place != nil:
		sc.lostInSpool(ld, *err)
	case err != nil:
		ld.err = *err
		sc.finish(ld)
	case sc.o.Verifier != nil && sc.checks.add(ld):
		return // checkRecords calls running.Done
	default:
		sc.checkAndFinish(ld)
	}
	sc.running.Done()
}

// checkAndFinish verifies the checksums that a load's records carry, and finishes it. Other
// goroutines may call it for the same scanner.
func (sc *Scanner) checkAndFinish(ld *load) {
	sc.addNewline(ld)
	sc.verify(ld)
	sc.finish(ld)
}

func (sc *Scanner) addNewline(ld *load) {
	if ld.Layout.Newline && sc.o.Dry == nil {
		ld.seg.Bytes[ld.off+ld.Layout.ShardBytes()] = '\n'
	}
}

// verify verifies the records' own checksums.
func (sc *Scanner) verify(ld *load) {
	switch {
	case sc.o.Verifier == nil:
	case ld.region != nil:
		ld.err = ld.region.Verify(func() bool { sc.verifyRecords(ld); return len(ld.bad) == 0 })
	default:
		sc.verifyRecords(ld)
	}
}

func (sc *Scanner) verifyRecords(ld *load) {
	mem := ld.memory().Bytes[ld.off:]
	for i, s := range ld.Layout.Spans {
		if s.SizeBytes < 0 {
			continue
		}
		if err := sc.o.Verifier.Verify(mem[s.OffsetBytes : s.OffsetBytes+s.SizeBytes]); err != nil {
			if ld.bad == nil {
				ld.bad = map[int]error{}
			}
			ld.bad[i] = err
		}
	}
}

// finish publishes a load's piece, or its error, and wakes all waiters.
func (sc *Scanner) finish(ld *load) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.finishLocked(ld)
}

func (sc *Scanner) finishLocked(ld *load) {
	delete(sc.loads, ld.Piece)
	if ld.ahead {
		sc.aheadOut -= ld.Layout.CostBytes()
	}
	if ld.err == nil {
		ld.err = sc.broken[ld.Shard]
	}
	if ld.err == nil {
		sc.publish(ld)
	} else if ld.err != budget.ErrNoRoom && ld.err != errClosed && ld.err != errCalledOff && !errors.Is(ld.err, storage.ErrReadAgain) {
		sc.o.Note(sc.describe(ld))
	}
	if mem := ld.memory(); mem != nil && ld.stage.Load() != calledOff {
		mem.Pins.Unpin()
	}
	close(ld.done)
}

// publish makes a load's piece visible to readers, which take no lock. It updates the statistics
// first, so that no reader has bytes, or an error, that are not counted yet.
func (sc *Scanner) publish(ld *load) {
	sc.tell(ld)
	spans := ld.Layout.Spans
	for i := range spans {
		spans[i].OffsetBytes += ld.off
	}
	e := newEntry(ld.memory(), ld.Piece, spans)
	e.region, e.bad = ld.region, ld.bad
	e.spooled, e.ordinal = ld.Place, sc.ordinal(ld)
	sc.cache.recall(e, ld.wanted)
	if old := sc.slots.at(ld.Piece); old != nil {
		sc.takeOver(e, old, ld.wanted)
	}
	e.mem.Live.Add(e.liveBytes())
	e.mem.Pins.Add(int64(ld.Waiters.Load()))
	if e.mapped() {
		sc.cache.hold(e.tableBytes()) // until it is forgotten
	} else {
		sc.cache.attach(ld.seg, e)
	}
	ld.entry = e
	sc.slots.set(ld.Piece, e)
}

// takeOver replaces an entry of the same piece by e. If the old one was loaded for other phases
// than the record that is wanted now, records that were delivered from it count as delivered in e,
// too. The same holds if that record may have been delivered before (lentBefore).
func (sc *Scanner) takeOver(e, old *entry, wanted int) {
	if wanted == lentBefore || !old.delivered(wanted) {
		for w := range e.out {
			e.out[w].Or(old.out[w].Load())
		}
	}
	old.mem.Live.Add(-old.liveBytes())
	if old.mapped() {
		sc.forget(old)
	}
}

// tell counts what a load has read.
func (sc *Scanner) tell(ld *load) {
	for _, err := range ld.bad {
		sc.o.Note(fmt.Errorf("%s: %w", sc.o.Index.Shard(ld.Shard).Object.Path, err))
	}
	if ld.region != nil {
		return // mapped: nothing was read
	}
	sc.counts.piecesRead.Add(1)
	sc.counts.bytesRead.Add(uint64(ld.Layout.SizeBytes))
	w, bit := &sc.everRead[ld.Piece>>6], uint64(1)<<(ld.Piece&63)
	if *w&bit != 0 {
		sc.counts.piecesReread.Add(1)
	}
	*w |= bit
}

// describe adds the shard's name to an error that lacks it.
func (sc *Scanner) describe(ld *load) error {
	if _, ok := errors.AsType[*storage.Error](ld.err); ok {
		return ld.err
	}
	start, end := int64(ld.Layout.Start()), int64(ld.Layout.End())
	return &storage.Error{Object: sc.o.Index.Shard(ld.Shard).Object.Path, OffsetBytes: start, SizeBytes: end - start, Err: ld.err}
}

// Stages of a load. Only a queued one can be cancelled. The zero value is hasBegun: it has begun,
// or the caller that started it submits its reads.
const (
	hasBegun  = iota
	isQueued  // its reads are with storage, or about to be, and none has begun
	calledOff // none of its reads has begun, and none will
)

// begin is called by storage before it begins one of the load's reads, and reports whether it may.
// Once one has begun, all of them complete.
func (ld *load) begin() bool {
	return ld.stage.CompareAndSwap(isQueued, hasBegun) || ld.stage.Load() != calledOff
}

// want notes that a reader will need the load. It is called with Scanner.mu held.
func (ld *load) want(r *Reader) {
	if !slices.Contains(ld.readers, r) {
		ld.readers = append(ld.readers, r)
	}
}

// cancel drops what only this reader wanted and has not begun: loads that wait for storage, for a
// decoder or for the spool. It does not wait. Loads that have begun complete, and are kept if there
// is room.
func (sc *Scanner) cancel(r *Reader) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, ld := range sc.loads {
		i := slices.Index(ld.readers, r)
		if i < 0 {
			continue
		}
		ld.readers = slices.Delete(ld.readers, i, i+1)
		if !ld.Waited() && len(ld.readers) == 0 && sc.takeBack(ld) {
			sc.counts.readsCancelled.Add(1)
			sc.counts.bytesCancelled.Add(uint64(ld.Layout.SizeBytes))
			ld.err = errCalledOff
			sc.finishLocked(ld)
		}
	}
	if sc.spool != nil {
		sc.newsOfSpool(sc.spool.Unqueue())
	}
}

// takeBack cancels a load if it has not begun, and reports whether it did. If its memory is with
// storage, it is freed when the reads have ended.
func (sc *Scanner) takeBack(ld *load) bool {
	switch {
	case ld.seg != nil:
		return ld.stage.CompareAndSwap(isQueued, calledOff)
	case sc.o.Index.Shard(ld.Shard).Codec == nil:
		// It waits for its shard to be mapped, or has just been mapped.
		return sc.maps.Cancel(ld.Shard, ld.Piece)
	}
	return sc.decoders.TakeBack(&ld.Load) || sc.spool != nil && sc.spool.TakeBack(&ld.Load)
}

// checkQueue passes loads whose bytes have arrived to the goroutines that verify their checksums.
// It holds at most all loads, each of which has its memory, so it needs no limit of its own.
type checkQueue struct {
	mu     sync.Mutex
	some   sync.Cond
	loads  []*load
	closed bool
}

func (q *checkQueue) init() { q.some.L = &q.mu }

// add never blocks; it returns false after close.
func (q *checkQueue) add(ld *load) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.loads = append(q.loads, ld)
	q.some.Signal()
	return true
}

// next waits for a load, and returns nil when the queue is closed and empty. The caller counts as
// working except while it waits.
func (q *checkQueue) next(work *meter.Level) *load {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.loads) == 0 && !q.closed {
		work.End(meter.Now())
		q.some.Wait()
		work.Begin(meter.Now())
	}
	if len(q.loads) == 0 {
		return nil
	}
	ld := q.loads[0]
	q.loads = append(q.loads[:0], q.loads[1:]...)
	return ld
}

func (q *checkQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.some.Broadcast()
}

func (sc *Scanner) checkRecords() {
	m := &sc.o.Meter.Working[meter.Gather]
	m.Begin(meter.Now())
	defer func() { m.End(meter.Now()) }()
	for ld := sc.checks.next(m); ld != nil; ld = sc.checks.next(m) {
		sc.checkAndFinish(ld)
		sc.running.Done()
	}
}
