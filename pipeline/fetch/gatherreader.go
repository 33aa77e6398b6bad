package fetch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// gatherReader is what a Reader that gathers has ahead. It keeps to a few places
// of its sequence, runs of batches: a file that is mapped is read at some places
// in turn.
type gatherReader struct {
	g   *gatherer
	seq Sequence
	// called is gatherer.calls at the last call.
	called atomic.Uint64

	mu     sync.Mutex
	runs   []*gatherRun // none is empty; the one used last is the last
	at     uint64       // the record that was asked for last
	closed bool
}

// gatherRun is a place of a sequence: batches one after the other.
type gatherRun struct {
	batches []*batch
	next    uint64 // behind the furthest record that was asked for
	stretch int64  // bytes of the next stretch
	streams bool   // it was read on
}

const (
	maxRuns = 4
	// keptBehindBytes is how much stays behind a reader at most: as much as it
	// asks for in a reply, twice.
	keptBehindBytes = 2 << 20
	// maxAheadRecords is what is read ahead for all readers together at most: each
	// record costs some hundred bytes.
	maxAheadRecords = 64 << 10
	// patience is how long a reader waits for all of a batch where it could
	// have a part.
	patience = 20 * time.Millisecond
)

func (g *gatherer) open(seq Sequence) *gatherReader {
	r := &gatherReader{g: g, seq: seq}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers = append(g.readers, r)
	return r
}

func (r *gatherReader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.dropAll()
	r.g.sweep()
	r.g.mu.Lock()
	r.g.readers = slices.DeleteFunc(r.g.readers, func(x *gatherReader) bool { return x == r })
	r.g.mu.Unlock()
	r.g.f.open.Add(-1)
}

// lend is Reader.Lend.
func (r *gatherReader) lend(ctx context.Context, k uint64, n int, l *Loan) error {
	g := r.g
	r.called.Store(g.calls.Add(1))
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return errGatherClosed
	}
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

// lent counts what has gone out.
func (g *gatherer) lent(records int, bytes int64, hits int) {
	c := &g.f.counts
	c.recordsOut.Add(uint64(records))
	c.bytesOut.Add(uint64(bytes))
	c.hits.Add(uint64(hits))
}

// lendReady lends what is there of records k … k+n-1, up to the first that is
// not. Where not even all of the first batch's are, it lends none: those who
// wait get more at a time.
func (r *gatherReader) lendReady(run *gatherRun, k uint64, n int, l *Loan) (lent int, bytes int64) {
	from, limit := len(l.segs), max(int(r.g.pool.BudgetBytes/r.g.pool.BlockBytes/8), 1)
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
		if m == 0 || m < want && lent == 0 && b.pending.Load() > 0 || !l.hold(&b.pins, from, limit) {
			break
		}
		bytes += b.lend(i, m, l)
		lent += m
		k += uint64(m)
	}
	return lent, bytes
}

// lend appends records i … i+n-1, which have come.
func (b *batch) lend(i, n int, l *Loan) int64 {
	for j := i; j < i+n; j++ {
		l.Records = append(l.Records, b.bytes(j))
	}
	return b.offs[i+n] - b.offs[i]
}

// lendFirst waits for record k, which is in the batch, and lends it with what
// of the batch has come by then. The caller's pin becomes the loan's.
func (r *gatherReader) lendFirst(ctx context.Context, b *batch, k uint64, n int, l *Loan) error {
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
			// Nobody was told of it: it was read ahead, or the call before.
			r.readAgain(b, i, k)
		}
		waited = true
		if err := r.wait(ctx, b, i, k, l.Waiter); err != nil {
			return err
		}
	}
	m := max(b.lendable(i, n), 1)
	bytes := b.lend(i, m, l)
	l.segs = append(l.segs, &b.pins)
	hits := m
	if waited {
		hits--
	}
	r.g.lent(m, bytes, hits)
	return nil
}

func (r *gatherReader) recordError(k uint64, err error) error {
	var number [1]uint64
	if r.seq.Records(k, number[:]) != 1 {
		return err
	}
	return r.g.f.recordError(number[0], err)
}

// wait waits for a batch that the caller pins: until all has come, or, at the
// end of its patience, record k, which is its record i.
func (r *gatherReader) wait(ctx context.Context, b *batch, i int, k uint64, w *meter.Waiter) error {
	f := r.g.f
	began := f.now()
	f.counts.waits.Add(1)
	number := w.Begin(r.g.waitsFor(), nil, r, k)
	defer func() {
		w.End(number)
		f.counts.waitNanos.Add(uint64(f.now() - began))
	}()
	left := f.config.ReadTimeout
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
			left = f.config.ReadTimeout - time.Duration(f.now()-began)
			if left <= 0 {
				err := r.recordError(k, ErrTimeout)
				r.g.note(err)
				return err
			}
			timer.Reset(min(patience, left))
		}
	}
}

// at is the batch that has a record, which must be in the run.
func (run *gatherRun) at(k uint64) *batch {
	for _, b := range run.batches {
		if k < b.end() {
			return b
		}
	}
	return nil
}

func (run *gatherRun) has(k uint64) bool {
	return len(run.batches) > 0 && k >= run.batches[0].from && k < run.end()
}

// end is behind the last record of a run that is not empty.
func (run *gatherRun) end() uint64 { return run.batches[len(run.batches)-1].end() }
