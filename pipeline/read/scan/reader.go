package scan

import (
	"context"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
)

// Reader is one pass over a sequence, which may be read at any positions. Concurrent calls are
// allowed (a mapped file is read that way) and do not wait for each other's data.
type Reader struct {
	sc    *Scanner
	seq   chunkmap.Sequence
	phase chunkmap.Subset

	mu     sync.Mutex
	ahead  window.Reader
	stock  stock
	last   lastLent
	closed bool
}

// lastLent is the last record of the last Read. It does not count as delivered yet: a caller that
// had no room for all of it asks for it again.
type lastLent struct {
	entry *entry
	index int
	k     uint64
	again bool // budget.Records.Again
}

// Open returns a reader of a sequence of records of Options.Part. Opening costs
// nothing: reading ahead starts with the calls of Read.
func (sc *Scanner) Open(seq chunkmap.Sequence) *Reader {
	return sc.OpenPhase(seq, chunkmap.Subset{Number: sc.o.Phase, Part: sc.o.Survey.Places.Part})
}

// OpenPhase is Open for records of another phase, if the dataset is sampled. Phases with the same
// number must have the same records.
func (sc *Scanner) OpenPhase(seq chunkmap.Sequence, phase chunkmap.Subset) *Reader {
	sc.open.Add(1)
	sc.enter(phase)
	r := &Reader{sc: sc, seq: seq, phase: phase, ahead: sc.follow(seq, phase)}
	r.stock.r = r
	return r
}

// Close ends the pass. It is idempotent.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	if r.last.entry != nil {
		r.sc.deliver(r.last.entry, r.last.index, r.last.again)
		r.last = lastLent{}
	}
	r.ahead.Close()
	r.sc.cancel(r)
	r.sc.leave(r.phase)
	r.sc.open.Add(-1)
}

// Busy reports whether pieces are being loaded by something that uses all cores: a storage that is
// told what will be read, or decoders.
func (r *Reader) Busy() bool {
	sc := r.sc
	return sc.plan != nil && sc.slots.missing.Load() > 0 || sc.decoders.Busy()
}

// lendBlock is how many records are looked up at a time.
const lendBlock = 256

// Read appends to l.Records the bytes of records k … k+n-1 of the sequence, as they are in the
// decoded shard (with a newline added to a last line that lacks one). It waits for records that are
// not in memory. It may return fewer than n records, but at least one, so that the pinned records
// stay within the budget.
//
// Errors: the context's; options.ErrTimeout; a *chunkmap.RecordError. If records before the failing
// one are available, Read returns these without an error; the error comes when the failing record
// is the first to be asked for. A failed call appends nothing and loses nothing, and may be
// repeated.
func (r *Reader) Read(ctx context.Context, k uint64, n int, l *budget.Records) error {
	n, err := chunkmap.Clip(r.seq, k, n)
	if err != nil {
		return err
	}
	own := lendingOf(l)
	c := call{loan: l, own: own, evictions: r.sc.maps.Evictions(), mappedFrom: own.Len(), segsFrom: l.Pinned()}
	r.collect(&c, k, n)
	missing := c.lent < n && !c.full
	r.readAhead(k, n, missing, c.lent, l.Again)
	if c.lent == 0 {
		if err := r.lendFirst(ctx, k, &c); err != nil {
			return err
		}
		if n > 1 {
			r.collect(&c, k+1, n-1)
		}
	}
	r.lent(k, &c)
	return nil
}

// call is the progress of one call of Read.
type call struct {
	loan                 *budget.Records
	own                  *lending // in loan
	evictions            uint64   // before any record is pinned
	segsFrom, mappedFrom int      // what loan and own had before the call
	lent                 int
	bytes                uint64
	waited               int
	full                 bool // no more segments may be pinned
	lastEntry            *entry
	lastIndex            int
}

// add appends a record of a pinned entry. The record appended before it counts as delivered from
// now on.
func (sc *Scanner) add(c *call, e *entry, i int) {
	b := e.bytes(i)
	if e.mapped() {
		c.own.Add(e.region, i)
	}
	c.loan.Records = append(c.loan.Records, b)
	c.lent++
	c.bytes += uint64(len(b))
	if c.lastEntry != nil {
		sc.deliver(c.lastEntry, c.lastIndex, c.loan.Again)
	}
	c.lastEntry, c.lastIndex = e, i
}

// deliver notes that record i of an entry was delivered. again means that it may have been
// delivered before in the same pass.
func (sc *Scanner) deliver(e *entry, i int, again bool) {
	if !e.deliver(i) && !again && sc.mu.TryLock() {
		// It was delivered before: perhaps this is the next epoch. If the lock is not available,
		// only a hint is lost.
		if e.liveBytes() == 0 {
			e.renew()
			e.deliver(i)
		}
		sc.mu.Unlock()
	}
}

// collect pins and appends records k … k+n-1 up to the first that is not in memory. It takes no
// lock and allocates nothing once l has grown.
func (r *Reader) collect(c *call, k uint64, n int) {
	sc, l := r.sc, c.own
	if l.numbers == nil {
		l.numbers, l.found = make([]uint64, lendBlock), make([]found, lendBlock)
	}
	most := int(sc.loanSegments.Load())
	for n > 0 {
		m := r.seq.Records(k, l.numbers[:min(n, lendBlock)])
		if m == 0 {
			return
		}
		found := l.found[:sc.find(l.numbers[:m], l.found)]
		for at, x := range found {
			if x.entry.mapped() {
				if !x.entry.region.PinResident(c.evictions) {
					found = found[:at]
					break
				}
			} else if !c.loan.Hold(&x.entry.mem.Pins, c.segsFrom, most) {
				c.full, found = true, found[:at]
				break
			}
			sc.add(c, x.entry, x.index)
		}
		clear(l.found[:m])
		if len(found) < m {
			return
		}
		k += uint64(m)
		n -= m
	}
}

// find looks up records until one is not in memory, and returns how many are. It touches everything
// that pinning them will: these loads don't depend on each other, as locked operations do, so the
// processor overlaps their cache misses.
func (sc *Scanner) find(records []uint64, to []found) int {
	for at, record := range records {
		piece := sc.pieces.Of(record)
		to[at] = found{sc.slots.at(piece), int(record - sc.pieces.Starts[piece])}
	}
	for at, x := range to[:len(records)] {
		e, i := x.entry, x.index
		if e == nil || e.spans[i].SizeBytes < 0 || e.bad != nil && e.bad[i] != nil {
			return at
		}
		e.mem.Pins.Count()
		e.out[i>>6].Load()
	}
	return len(records)
}

// lent counts the records that a call returns.
func (r *Reader) lent(k uint64, c *call) {
	n := &r.sc.counts
	n.recordsOut.Add(uint64(c.lent))
	n.bytesOut.Add(c.bytes)
	n.hits.Add(uint64(c.lent - c.waited))
	if mapped := c.own.Len() - c.mappedFrom; mapped > 0 {
		n.recordsMapped.Add(uint64(mapped))
	}
	r.mu.Lock()
	old := r.last
	last := lastLent{c.lastEntry, c.lastIndex, k + uint64(c.lent) - 1, c.loan.Again}
	r.last = last
	r.mu.Unlock()
	if old.entry != nil && old.k != last.k {
		r.sc.deliver(old.entry, old.index, old.again)
	}
}

// lendFirst waits for record k and appends it.
func (r *Reader) lendFirst(ctx context.Context, k uint64, c *call) error {
	sc := r.sc
	if r.seq.Records(k, c.own.numbers[:1]) != 1 {
		return nil
	}
	record := c.own.numbers[0]
	piece := sc.pieces.Of(record)
	i := int(record - sc.pieces.Starts[piece])
	e, waited, err := r.demand(ctx, k, piece, i, c.loan)
	if err == nil {
		err = e.bad[i]
		if err != nil {
			e.mem.Pins.Unpin()
		}
	}
	if err != nil {
		if ctxErr := ctx.Err(); ctxErr != nil && err == ctxErr {
			return err
		}
		described := sc.recordError(record, err)
		if err == options.ErrTimeout {
			sc.o.Note(described)
		}
		return described
	}
	if waited {
		c.waited++
	}
	if !e.mapped() {
		c.loan.Keep(&e.mem.Pins) // pinned for us
	}
	sc.add(c, e, i)
	return nil
}

func (sc *Scanner) recordError(record uint64, err error) error {
	return chunkmap.NameRecord(sc.o.Index, record, err)
}

// demand waits for the piece whose record i is record k of the sequence, and pins it. A load that
// was begun before the phase had readers may lack the record: then demand starts another one, which
// has it. A record that is not in the phase is an error: no load would have it.
func (r *Reader) demand(ctx context.Context, k uint64, piece, i int, l *budget.Records) (e *entry, waited bool, err error) {
	for {
		e, once, err := r.demandOnce(ctx, k, piece, i, l)
		waited = waited || once
		if err != nil || e.spans[i].SizeBytes >= 0 {
			return e, waited, err
		}
		e.mem.Pins.Unpin()
		if !r.phase.Part.Has(r.sc.pieces.Starts[piece] + uint64(i)) {
			return nil, waited, errNotInPart
		}
	}
}

func (r *Reader) demandOnce(ctx context.Context, k uint64, piece, i int, l *budget.Records) (e *entry, waited bool, err error) {
	sc, w := r.sc, l.Waiter
	var t deferred
	sc.mu.Lock()
	if sc.slots.has(piece, i) {
		e := sc.slots.at(piece)
		if e.mem.Pins.Pin() {
			sc.mu.Unlock()
			return e, false, nil
		}
		// While mu is held no segment is freed, but a region may be: this one is about to be
		// unmapped.
		sc.forget(e)
	}
	if !sc.reads(r.phase) {
		sc.mu.Unlock()
		return nil, false, errReaderClosed
	}
	ld := sc.loads[piece]
	if ld == nil {
		ld = sc.start(piece, wantedBy(i, l.Again), budget.Demand, &t)
	}
	ld.Waiters.Add(1)
	ld.want(r)
	sc.mu.Unlock()
	sc.submit(&t)
	select {
	case <-ld.done: // it was in the page cache, or has just arrived
		return ld.entry, false, ld.err
	default:
	}
	sc.mu.Lock()
	on, via := ld.waitsFor()
	sc.mu.Unlock()
	number := w.Begin(on, via, sc.o, sc.pieces.Starts[piece])
	e, err = r.wait(ctx, ld, k)
	w.End(number)
	return e, true, err
}

// promoteAfter is how long a reader waits before its reads are promoted: some complete sooner, and
// promoting takes up to 0.2 ms.
const promoteAfter = 10 * time.Millisecond

// wait waits for the load of record k. The caller is already counted among its waiters.
func (r *Reader) wait(ctx context.Context, ld *load, k uint64) (*entry, error) {
	sc := r.sc
	began := sc.now()
	sc.counts.waits.Add(1)
	defer func() { sc.counts.waitNanos.Add(uint64(sc.now() - began)) }()
	timeout := time.NewTimer(sc.o.ReadTimeout)
	defer timeout.Stop()
	var slow <-chan time.Time
	if sc.plan != nil {
		promote := time.NewTimer(promoteAfter)
		defer promote.Stop()
		slow = promote.C
	}
	for dry := sc.o.Dry; dry != nil && ctx.Err() == nil && !ld.isDone() && (dry.Complete() || sc.decoders.Step()); {
	}
	for {
		select {
		case <-ld.done:
			return ld.entry, ld.err
		case <-ctx.Done():
			sc.abandon(ld)
			return nil, ctx.Err()
		case <-slow:
			r.mu.Lock()
			r.ahead.Walker().Promote(k)
			r.mu.Unlock()
		case <-timeout.C:
			left := int64(sc.o.ReadTimeout) - (sc.now() - max(ld.started, ld.Progress()))
			if left <= 0 {
				sc.abandon(ld)
				return nil, options.ErrTimeout
			}
			timeout.Reset(time.Duration(left))
		}
	}
}

// abandon removes one waiter from a load. The load itself continues until it is cancelled.
func (sc *Scanner) abandon(ld *load) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	select {
	case <-ld.done:
		if ld.entry != nil {
			ld.entry.mem.Pins.Unpin()
		}
	default:
		ld.Waiters.Add(-1)
	}
}

// follow returns the window of a reader of a sequence.
func (sc *Scanner) follow(seq chunkmap.Sequence, phase chunkmap.Subset) window.Reader {
	var counts *window.Wanted
	if sc.counted() {
		counts = sc.wanted
	}
	r := window.NewReader(seq, counts, sc.o.LookaheadRecords, sc.nearRecords())
	r.Tell(sc.plan.NewPhaseWalker(seq, phase))
	return r
}

// stock is the window.Loader of a reader. It is guarded by Reader.mu.
type stock struct {
	r     *Reader
	todo  deferred // to be done after the lock is released
	again bool     // budget.Records.Again of the call
}

var _ window.Loader = (*stock)(nil)

// Have returns how many of the records are in memory, up to the first that is not.
func (s *stock) Have(records []uint64) int {
	sc := s.r.sc
	for at, record := range records {
		piece := sc.pieces.Of(record)
		if !sc.slots.has(piece, int(record-sc.pieces.Starts[piece])) {
			return at
		}
	}
	return len(records)
}

// Holds implements window.Loader.
func (s *stock) Holds(record uint64) bool {
	sc := s.r.sc
	piece := sc.pieces.Of(record)
	if sc.slots.has(piece, int(record-sc.pieces.Starts[piece])) {
		return true
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.loads[piece] != nil
}

// Start starts the load of a record's piece, unless it is in progress.
func (s *stock) Start(record uint64, more bool) (bytes int64, room bool) {
	sc := s.r.sc
	piece := sc.pieces.Of(record)
	i := int(record - sc.pieces.Starts[piece])
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.slots.has(piece, i) {
		return 0, true // loaded since it was looked up
	}
	if ld := sc.loads[piece]; ld != nil {
		ld.want(s.r)
		return 0, true
	}
	if !more || !sc.reads(s.r.phase) {
		return 0, false
	}
	ld := sc.start(piece, wantedBy(i, s.again), budget.Prefetch, &s.todo)
	if ld == nil {
		return 0, false
	}
	ld.want(s.r)
	return ld.Layout.CostBytes(), true
}

// Cancel implements window.Loader.
func (s *stock) Cancel() { s.r.sc.cancel(s.r) }

// readAhead starts loads of what is missing of records k … k+n-1, and after them. missing means
// that some of these are missing, from the lent-th on. again is budget.Records.Again.
func (r *Reader) readAhead(k uint64, n int, missing bool, lent int, again bool) {
	sc := r.sc
	if sc.slots.missing.Load() == 0 {
		return
	}
	if !r.mu.TryLock() {
		return // another call is doing it
	}
	readers := max(sc.open.Load(), 1)
	reach := r.ahead.Walker().Reach(sc.o.Profile.Ahead.Bytes)
	r.stock.again = again
	r.ahead.Advance(&r.stock, k, n, missing, lent, int(readers), min(reach, min(sc.limits.WindowBytes, sc.budget.Bytes()/4)/readers))
	t := r.stock.todo
	r.stock.todo = deferred{}
	r.mu.Unlock()
	sc.submit(&t)
}

// lending is what a Reader keeps in a budget.Records. It is reused with it.
type lending struct {
	mapped.Lent
	numbers []uint64
	found   []found
}

var _ budget.Lender = (*lending)(nil)

// lendingOf returns the lending of l, which it makes if there is none.
func lendingOf(l *budget.Records) *lending {
	own, ok := l.Lender.(*lending)
	if !ok {
		own = new(lending)
		l.Lender = own
	}
	return own
}

// found is a record that is in memory.
type found struct {
	entry *entry
	index int
}
