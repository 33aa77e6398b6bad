package gather

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// inlineCopyBytes is the maximum that is copied to its place on the storage's goroutine that
// completes the read; more would keep that from its work.
const inlineCopyBytes = 16 << 10

// stretch is the reads of consecutive batches that were planned together. It is reused when all
// have completed.
type stretch struct {
	g       *Gatherer
	reads   []read
	parts   []part
	scratch []budget.Block
	submit  []*storage.Read
	pending atomic.Int32
}

// read is a cutRead in progress.
type read struct {
	request  storage.Read
	stretch  *stretch
	from, to int  // its parts
	copied   bool // to their places, from scratch memory
	err      error
	next     *read // in the queue of reads to be finished
}

// part is bytes of a read that belong to a record.
type part struct {
	b        *batch
	record   int   // of b
	at       int64 // in the read
	to, size int64 // in the block
}

// start starts the reads of a plan. It uses at most scratch blocks to read several records
// together.
func (g *Gatherer) start(p *planner, pl *plan.Plan, scratch int) {
	st := g.newStretch()
	p.cut(pl, func() bool {
		if len(st.scratch) >= scratch {
			return false
		}
		b, err := g.pool.Take(1, false)
		if err == nil {
			st.scratch = append(st.scratch, b)
		}
		return err == nil // if there is no memory at all, others will report that
	})
	st.fill(p)
	st.pending.Store(int32(len(st.submit)) + 1)
	g.counts.underWay.Add(int64(len(st.submit)))
	g.running.Add(len(st.submit))
	if len(st.submit) > 0 {
		g.o.Submit(st.submit)
	}
	st.down()
}

// fill makes the reads. Their addresses stay valid after they are submitted.
func (st *stretch) fill(p *planner) {
	parts := 0
	for i := range p.cuts {
		parts += len(p.cuts[i].parts)
	}
	st.parts = slices.Grow(st.parts[:0], parts)
	if n := len(p.cuts); cap(st.reads) < n {
		st.reads = make([]read, 0, 1<<bits.Len(uint(n)))
	}
	st.reads = st.reads[:len(p.cuts)]
	var object storage.Object // of the previous read: they are in the order of their shards
	for i := range p.cuts {
		c, r := &p.cuts[i], &st.reads[i]
		if r.request.Done == nil {
			r.stretch, r.request.Done, r.request.Wanted = st, r.done, r.wanted
		}
		var mem []byte
		if r.copied = c.b == nil; r.copied {
			mem = st.scratch[c.scratch].Mem
		} else {
			mem = c.b.block.Mem
		}
		if i == 0 || c.object != p.cuts[i-1].object {
			object = st.g.o.Index.Shard(c.object).Object
		}
		r.request.Object, r.request.Epoch = object, p.epoch
		r.request.OffsetBytes, r.request.Buf = c.off, mem[c.to:c.to+c.size:c.to+c.size]
		r.err, r.from = nil, len(st.parts)
		for _, x := range c.parts {
			place := p.places[x.Want]
			st.parts = append(st.parts, part{place.b, place.record, x.ReadOffset, place.to + x.WantOffset, x.SizeBytes})
		}
		r.to = len(st.parts)
		st.submit = append(st.submit, &r.request)
	}
}

// wanted is called by the storage: reads are cancelled if all of their batches were dropped.
func (r *read) wanted() bool {
	for _, x := range r.stretch.parts[r.from:r.to] {
		if x.b.wanted() {
			return true
		}
	}
	return false
}

// done is called by the storage.
func (r *read) done(err error) {
	r.err = err
	g := r.stretch.g
	g.o.Meter.Reading.End()
	long := g.o.Verifier != nil || r.copied && len(r.request.Buf) > inlineCopyBytes && g.o.Dry == nil
	if err == nil && long {
		g.o.Meter.Queued[meter.Gather].Add(1)
		if g.work.add(r) {
			return
		}
		g.o.Meter.Queued[meter.Gather].Add(-1)
	}
	r.finish()
}

// finish passes the bytes of a read, or its error, to its parts.
func (r *read) finish() {
	st := r.stretch
	g := st.g
	g.counts.underWay.Add(-1)
	off := r.err == storage.ErrUnwanted
	switch {
	case off:
		g.counts.readsCancelled.Add(1)
		g.counts.bytesCancelled.Add(uint64(len(r.request.Buf)))
	case r.err != nil:
		g.o.Note(r.err)
	default:
		g.counts.reads.Add(1)
		g.counts.bytesRead.Add(uint64(len(r.request.Buf)))
	}
	for _, x := range st.parts[r.from:r.to] {
		if off {
			x.b.down() // no call looks at its records any more
			continue
		}
		if r.err != nil {
			x.b.fail(x.record, fault{err: r.err})
		} else if r.copied && g.o.Dry == nil {
			copy(x.b.block.Mem[x.to:x.to+x.size], r.request.Buf[x.at:])
		}
		x.b.came(x.record, r)
	}
	st.down()
	g.running.Done()
}

// down counts down one read; the stretch is free after the last.
func (st *stretch) down() {
	if st.pending.Add(-1) > 0 {
		return
	}
	for _, b := range st.scratch {
		st.g.giveBlock(b)
	}
	clear(st.submit)
	st.parts, st.scratch, st.submit = st.parts[:0], st.scratch[:0], st.submit[:0]
	st.g.freeStretch(st)
}
