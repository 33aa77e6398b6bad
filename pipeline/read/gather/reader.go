package gather

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
)

// Reader is one pass over a sequence, which may be read at any positions. Concurrent calls are
// allowed (a mapped file is read that way) and do not wait for each other's data.
//
// It reads at a few places of its sequence, each a run of batches: a mapped file is read at several
// places alternately.
type Reader struct {
	g   *Gatherer
	seq chunkmap.Sequence
	// called is Gatherer.calls at the last call.
	called atomic.Uint64

	mu   sync.Mutex
	runs []*run // none is empty but extending; the most recently used one is last
	// extending is the run at whose end a call waits while it is extended; nil if none is.
	extending *run
	closed    bool
	walker    *window.Lookahead // nil: the storage takes no hints

	announced *run // whose records are announced, if window.Plan.Exact is set
	others    int  // how often other runs were extended since announced was
}

const (
	maxRuns = 4
	// keptBehindBytes is the maximum that is kept behind a reader: twice what it asks for in a
	// reply.
	keptBehindBytes = 2 << 20
	// maxAheadRecords is the maximum that is read ahead for all readers together: each record costs
	// about a hundred bytes.
	maxAheadRecords = 64 << 10
	// patience is how long a reader waits for all of a batch if it could have a part.
	patience = 20 * time.Millisecond
)

// Close ends the pass, and cancels what has not begun and no call waits for. It is idempotent.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.walker.Close()
	r.dropAll()
	r.g.sweep()
	r.g.mu.Lock()
	r.g.readers = slices.DeleteFunc(r.g.readers, func(x *Reader) bool { return x == r })
	r.g.mu.Unlock()
	r.g.open.Add(-1)
}

// Read appends to l.Records the bytes of records k … k+n-1 of the sequence (with a newline added to
// a last line that lacks one), which are mostly adjacent in memory. It waits for records that are
// not in memory. It may return fewer than n records, but at least one, so that the pinned records
// stay within the budget.
//
// Errors: the context's; options.ErrTimeout, and errors of the storage or of checksums, in a
// *chunkmap.RecordError. If records before the failing one are available, Read returns these without
// an error; the error comes when the failing record is the first to be asked for. A failed call
// appends nothing and loses nothing, and may be repeated.
func (r *Reader) Read(ctx context.Context, k uint64, n int, l *budget.Records) error {
	n, err := chunkmap.Clip(r.seq, k, n)
	if err != nil {
		return err
	}
	g := r.g
	r.called.Store(g.calls.Add(1))
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return errClosed
	}
	r.walker.Move(k, n)
	run, err := r.moveTo(k, n)
	if run == nil {
		r.mu.Unlock()
		return err
	}
	lent, bytes := r.lendReady(run, k, n, l)
	r.readAhead(run, k, n)
	if lent > 0 {
		r.mu.Unlock()
		g.lent(lent, bytes, lent)
		return nil
	}
	b := run.at(k)
	b.pins.Add(1) // it is in a run, so it is not dead
	r.mu.Unlock()
	if err := r.lendFirst(ctx, b, k, n, l); err != nil {
		b.pins.Unpin()
		return err
	}
	return nil
}

// lent counts the records that a call returns.
func (g *Gatherer) lent(records int, bytes int64, hits int) {
	c := &g.counts
	c.recordsOut.Add(uint64(records))
	c.bytesOut.Add(uint64(bytes))
	c.hits.Add(uint64(hits))
}

// lendReady pins and appends records k … k+n-1 up to the first that has not arrived. If some of the
// first batch's are still missing, it returns none: a caller that waits for the rest gets more at a
// time.
func (r *Reader) lendReady(run *run, k uint64, n int, l *budget.Records) (lent int, bytes int64) {
	from, limit := l.Pinned(), max(int(r.g.pool.BudgetBytes()/r.g.pool.BlockBytes/8), 1)
	for _, b := range run.batches {
		if lent == n || b.from > k {
			break
		}
		if k >= b.end() {
			continue
		}
		i := int(k - b.from)
		want := min(n-lent, b.records()-i)
		m := b.lendable(i, want)
		if m == 0 || m < want && lent == 0 && b.pending.Load() > 0 || !l.Hold(&b.pins, from, limit) {
			break
		}
		bytes += b.lend(i, m, l)
		lent += m
		k += uint64(m)
	}
	return lent, bytes
}

// lend appends records i … i+n-1, which have arrived.
func (b *batch) lend(i, n int, l *budget.Records) int64 {
	for j := i; j < i+n; j++ {
		l.Records = append(l.Records, b.bytes(j))
	}
	return b.offs[i+n] - b.offs[i]
}

// lendFirst waits for record k, which is in the batch, and appends it with the records after it in
// the batch that have arrived by then. The caller's pin goes to l.
func (r *Reader) lendFirst(ctx context.Context, b *batch, k uint64, n int, l *budget.Records) error {
	i, waited := int(k-b.from), false
	for {
		if b.ready(i) {
			x, bad := b.fault(i)
			if !bad {
				break
			}
			if waited || x.lasting {
				return r.recordError(k, x.err)
			}
			// Its error was not returned: it was read ahead, or by the previous call.
			r.readAgain(b, i, k)
		}
		waited = true
		if err := r.wait(ctx, b, i, k, l.Waiter); err != nil {
			return err
		}
	}
	m := max(b.lendable(i, n), 1)
	bytes := b.lend(i, m, l)
	l.Keep(&b.pins)
	hits := m
	if waited {
		hits--
	}
	r.g.lent(m, bytes, hits)
	return nil
}

func (r *Reader) recordError(k uint64, err error) error {
	var number [1]uint64
	if r.seq.Records(k, number[:]) != 1 {
		return err
	}
	return chunkmap.NameRecord(r.g.o.Index, number[0], err)
}

// wait waits for a batch that the caller pins: until all of it has arrived or, after its patience,
// until record k has, which is its record i.
func (r *Reader) wait(ctx context.Context, b *batch, i int, k uint64, w *meter.Waiter) error {
	g, began := r.g, time.Now()
	g.counts.waits.Add(1)
	if dry := g.o.Dry; dry != nil {
		for ctx.Err() == nil && dry.Complete() { // all that was submitted: a reader is slow in comparison
		}
	}
	number := w.Begin(g.waitsFor(), nil, r, k)
	defer func() {
		w.End(number)
		g.counts.waitNanos.Add(uint64(time.Since(began)))
	}()
	left := g.o.ReadTimeout
	timer := time.NewTimer(min(patience, left))
	defer timer.Stop()
	for {
		wake := b.wait()
		if wake == nil {
			return nil
		}
		select {
		case <-wake:
			if b.ready(i) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			if b.ready(i) {
				return nil
			}
			r.promote(k)
			left = g.o.ReadTimeout - time.Since(began)
			if left <= 0 {
				err := r.recordError(k, options.ErrTimeout)
				g.o.Note(err)
				return err
			}
			timer.Reset(min(patience, left))
		}
	}
}

// promote tells the storage that a reader waits for record k.
func (r *Reader) promote(k uint64) {
	if r.walker == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.walker.Promote(k)
}

// Object names the shard of a record of the sequence.
func (r *Reader) Object(k uint64) string {
	var number [1]uint64
	if r.seq.Records(k, number[:]) != 1 {
		return ""
	}
	return chunkmap.ShardOf(r.g.o.Index, number[0])
}

var _ meter.Locator = (*Reader)(nil)
