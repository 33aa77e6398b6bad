package fetch

import (
	"context"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/gather"
	"github.com/lsiofs/lsiofs/pipeline/fetch/loan"
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// Reader is one pass over a sequence, from anywhere to anywhere. Calls from
// several goroutines are allowed (a file that is mapped is read so) and do not
// wait for each other's data.
type Reader struct {
	f       *Fetcher
	seq     Sequence
	batches *gather.Reader // nil unless records are gathered; it then does all

	mu      sync.Mutex
	windows []*window // the one used last is the last
	look    lookahead
	buf     []uint64
	last    lastLent
	closed  bool
}

// lastLent is the last record of the last Lend. It is not taken as gone out
// yet: a caller that had no room for all of it asks for it again.
type lastLent struct {
	entry *entry
	index int
	k     uint64
}

// Open gives a reader of a sequence. Opening costs nothing: what is read ahead
// follows the calls of Lend.
func (f *Fetcher) Open(seq Sequence) *Reader {
	r := &Reader{f: f, seq: seq}
	if f.gatherer != nil {
		r.batches = f.gatherer.Open(seq)
	} else {
		f.open.Add(1)
	}
	return r
}

// Close ends the pass. It is idempotent.
func (r *Reader) Close() {
	if r.batches != nil {
		r.batches.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	if r.last.entry != nil {
		r.f.deliver(r.last.entry, r.last.index)
		r.last = lastLent{}
	}
	if r.f.wanted != nil {
		r.count(r.look.from, r.look.to, -1)
	}
	r.f.callOff(r)
	r.f.open.Add(-1)
}

// InOrder says that records of loans mostly lie in memory one behind the other, as
// they go out, and that none of it is of Go's heap or of a file.
func (r *Reader) InOrder() bool { return r.batches != nil }

// lendBlock is how many records are looked up at a time.
const lendBlock = 256

// Lend appends to l.Records the bytes of records k … k+n-1 of the sequence,
// as they are in the decoded shard (a last line's missing newline added). It
// waits for those that are not in memory. It may lend fewer than n, but at
// least one, so that what is lent at a time stays within the budget.
//
// Errors: the context's; ErrTimeout; a *RecordError. When records before the
// one that fails are at hand, those are lent and there is no error: it comes
// when the failing record is asked for first. A failed call lends nothing and
// loses nothing; the same call may be made again.
func (r *Reader) Lend(ctx context.Context, k uint64, n int, l *Loan) error {
	if r.batches != nil {
		return r.batches.Lend(ctx, k, n, l)
	}
	n, err := loan.Clip(r.seq, k, n)
	if err != nil {
		return err
	}
	own := lendingOf(l)
	g := gathering{loan: l, own: own, evictions: r.f.maps.Evictions(), mappedFrom: own.Len(), segsFrom: l.Pinned(), recordsFrom: len(l.Records)}
	r.gather(&g, k, n)
	missing := g.lent < n && !g.full
	r.readAhead(k, n, missing && g.lent > 0, g.lent)
	if g.lent == 0 {
		if err := r.lendFirst(ctx, k, &g); err != nil {
			return err
		}
		if n > 1 {
			r.gather(&g, k+1, n-1)
		}
	}
	r.lent(k, &g)
	return nil
}

// gathering is what one call of Lend has so far.
type gathering struct {
	loan                  *Loan
	own                   *lending // of the loan
	evictions             uint64   // before anything is lent
	segsFrom, recordsFrom int
	mappedFrom            int
	lent                  int
	bytes                 uint64
	waited                int
	full                  bool // no more segments may be pinned
	lastEntry             *entry
	lastIndex             int
}

// add lends a record of an entry that is pinned. What was lent before
// it has now gone out.
func (f *Fetcher) add(g *gathering, e *entry, i int) {
	b := e.bytes(i)
	if e.mapped() {
		g.own.Add(e.region, i)
	}
	g.loan.Records = append(g.loan.Records, b)
	g.lent++
	g.bytes += uint64(len(b))
	if g.lastEntry != nil {
		f.deliver(g.lastEntry, g.lastIndex)
	}
	g.lastEntry, g.lastIndex = e, i
}

func (f *Fetcher) deliver(e *entry, i int) {
	if !e.deliver(i) && f.mu.TryLock() {
		// It has gone out before: perhaps this is the next epoch. Where
		// the lock is not to be had nothing is lost but a hint.
		if e.liveBytes() == 0 {
			e.renew()
			e.deliver(i)
		}
		f.mu.Unlock()
	}
}

// gather lends what is in memory of records k … k+n-1, up to the first that is
// not. It takes no lock and allocates nothing once l has grown.
func (r *Reader) gather(g *gathering, k uint64, n int) {
	f, l := r.f, g.own
	if l.numbers == nil {
		l.numbers, l.found = make([]uint64, lendBlock), make([]found, lendBlock)
	}
	for n > 0 {
		m := r.seq.Records(k, l.numbers[:min(n, lendBlock)])
		if m == 0 {
			return
		}
		found := l.found[:f.find(l.numbers[:m], l.found)]
		for at, x := range found {
			if x.entry.mapped() {
				if !x.entry.region.PinResident(g.evictions) {
					found = found[:at]
					break
				}
			} else if !g.loan.Hold(&x.entry.mem.Pins, g.segsFrom, f.limits.loanSegs) {
				g.full, found = true, found[:at]
				break
			}
			f.add(g, x.entry, x.index)
		}
		clear(l.found[:m])
		if len(found) < m {
			return
		}
		k += uint64(m)
		n -= m
	}
}

// find looks records up until one is not in memory, and returns how many are. It
// touches all that lending them will: none of these look-ups waits for the one
// before it, as locked operations do, so the processor does several at a time.
func (f *Fetcher) find(records []uint64, to []found) int {
	for at, record := range records {
		piece := f.pieces.of(record)
		to[at] = found{f.slots.at(piece), int(record - f.pieces.starts[piece])}
	}
	for at, x := range to[:len(records)] {
		e, i := x.entry, x.index
		if e == nil || e.spans[i].size < 0 || e.bad != nil && e.bad[i] != nil {
			return at
		}
		e.mem.Pins.Count()
		e.out[i>>6].Load()
	}
	return len(records)
}

// lent notes what has gone out.
func (r *Reader) lent(k uint64, g *gathering) {
	c := &r.f.counts
	c.recordsOut.Add(uint64(g.lent))
	c.bytesOut.Add(g.bytes)
	c.hits.Add(uint64(g.lent - g.waited))
	if mapped := g.own.Len() - g.mappedFrom; mapped > 0 {
		c.recordsMapped.Add(uint64(mapped))
	}
	r.mu.Lock()
	old := r.last
	last := lastLent{g.lastEntry, g.lastIndex, k + uint64(g.lent) - 1}
	r.last = last
	r.mu.Unlock()
	if old.entry != nil && old.k != last.k {
		r.f.deliver(old.entry, old.index)
	}
}

// lendFirst lends record k, and waits for it.
func (r *Reader) lendFirst(ctx context.Context, k uint64, g *gathering) error {
	f := r.f
	if r.seq.Records(k, g.own.numbers[:1]) != 1 {
		return nil
	}
	record := g.own.numbers[0]
	piece := f.pieces.of(record)
	i := int(record - f.pieces.starts[piece])
	e, waited, err := r.demand(ctx, piece, i, g.loan.Waiter)
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
		described := f.recordError(record, err)
		if err == ErrTimeout {
			f.note(described)
		}
		return described
	}
	if waited {
		g.waited++
	}
	if !e.mapped() {
		g.loan.Keep(&e.mem.Pins) // pinned for us
	}
	f.add(g, e, i)
	return nil
}

func (f *Fetcher) recordError(record uint64, err error) error {
	return loan.NameRecord(f.index, record, err)
}

// demand waits for a piece that has record i, and pins it.
func (r *Reader) demand(ctx context.Context, piece, i int, w *meter.Waiter) (e *entry, waited bool, err error) {
	f := r.f
	var t todo
	f.mu.Lock()
	if f.slots.has(piece, i) {
		e := f.slots.at(piece)
		if e.mem.Pins.Pin() {
			f.mu.Unlock()
			return e, false, nil
		}
		// No segment dies while mu is held, but a region does: this one is about to be
		// unmapped.
		f.forget(e)
	}
	ld := f.loads[piece]
	if ld == nil {
		ld = f.start(piece, i, budget.Demanded, &t)
	}
	ld.waiters++
	ld.want(r)
	f.mu.Unlock()
	f.carryOut(&t)
	select {
	case <-ld.done: // it was in the page cache, or has come just now
		return ld.entry, false, ld.err
	default:
	}
	f.mu.Lock()
	on, via := ld.waitsFor()
	f.mu.Unlock()
	number := w.Begin(on, via, f, f.pieces.starts[piece])
	e, err = f.wait(ctx, ld)
	w.End(number)
	return e, true, err
}

// wait waits for a load among whose waiters the caller is.
func (f *Fetcher) wait(ctx context.Context, ld *load) (*entry, error) {
	began := f.now()
	f.counts.waits.Add(1)
	defer func() { f.counts.waitNanos.Add(uint64(f.now() - began)) }()
	timeout := time.NewTimer(f.config.ReadTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-ld.done:
			return ld.entry, ld.err
		case <-ctx.Done():
			f.abandon(ld)
			return nil, ctx.Err()
		case <-timeout.C:
			last := ld.started
			if ld.clock != nil {
				last = max(last, ld.clock.Load())
			}
			left := int64(f.config.ReadTimeout) - (f.now() - last)
			if left <= 0 {
				f.abandon(ld)
				return nil, ErrTimeout
			}
			timeout.Reset(time.Duration(left))
		}
	}
}

// abandon takes one waiter off a load. The load itself goes on, until its reader
// goes elsewhere.
func (f *Fetcher) abandon(ld *load) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-ld.done:
		if ld.entry != nil {
			ld.entry.mem.Pins.Unpin()
		}
	default:
		ld.waiters--
	}
}
