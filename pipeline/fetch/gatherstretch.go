package fetch

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// inlineCopyBytes is up to how many bytes are copied to their places by the
// storage's goroutine that brings them; more would keep it from its work.
const inlineCopyBytes = 16 << 10

// stretch is the reads of consecutive batches that were planned together. It is
// used again when all have come.
type stretch struct {
	g       *gatherer
	reads   []gatherRead
	parts   []gatherPart
	scratch []budget.Block
	submit  []*storage.Read
	pending atomic.Int32
}

// gatherRead is a cutRead under way.
type gatherRead struct {
	read     storage.Read
	stretch  *stretch
	from, to int  // its parts
	copied   bool // to their places, from scratch memory
	err      error
	next     *gatherRead // in the queue of the gatherer's workers
}

// gatherPart is bytes of a read that belong to a record.
type gatherPart struct {
	b        *batch
	record   int   // of b
	at       int64 // in the read
	to, size int64 // in the block
}

// start starts the reads of a plan. At most so many blocks are used to read
// several records together.
func (g *gatherer) start(p *planner, pl *plan.Plan, scratch int) {
	st := g.newStretch()
	p.cut(pl, func() bool {
		if len(st.scratch) >= scratch {
			return false
		}
		b, err := g.pool.Take(1, false)
		if err == nil {
			st.scratch = append(st.scratch, b)
		}
		return err == nil // if there is no memory at all, others will say so
	})
	st.fill(p)
	st.pending.Store(int32(len(st.submit)) + 1)
	g.underWay.Add(int64(len(st.submit)))
	g.f.running.Add(len(st.submit))
	if len(st.submit) > 0 {
		g.f.submitReads(st.submit)
	}
	st.down()
}

// fill makes the reads, none of which moves once it was handed over.
func (st *stretch) fill(p *planner) {
	parts := 0
	for i := range p.cuts {
		parts += len(p.cuts[i].parts)
	}
	st.parts = slices.Grow(st.parts[:0], parts)
	if n := len(p.cuts); cap(st.reads) < n {
		st.reads = make([]gatherRead, 0, 1<<bits.Len(uint(n)))
	}
	st.reads = st.reads[:len(p.cuts)]
	var object storage.Object // of the read before: they are in the order of their shards
	for i := range p.cuts {
		c, r := &p.cuts[i], &st.reads[i]
		if r.read.Done == nil {
			r.stretch, r.read.Done, r.read.Wanted = st, r.done, r.wanted
		}
		var mem []byte
		if r.copied = c.b == nil; r.copied {
			mem = st.scratch[c.scratch].Mem
		} else {
			mem = c.b.block.Mem
		}
		if i == 0 || c.object != p.cuts[i-1].object {
			object = st.g.f.index.Shard(c.object).Object
		}
		r.read.Object = object
		r.read.OffsetBytes, r.read.Buf = c.off, mem[c.to:c.to+c.size:c.to+c.size]
		r.err, r.from = nil, len(st.parts)
		for _, x := range c.parts {
			place := p.places[x.Want]
			st.parts = append(st.parts, gatherPart{place.b, place.record, x.ReadOffset, place.to + x.WantOffset, x.SizeBytes})
		}
		r.to = len(st.parts)
		st.submit = append(st.submit, &r.read)
	}
}

// wanted is asked by the storage: reads are called off all of whose batches
// were dropped.
func (r *gatherRead) wanted() bool {
	for _, x := range r.stretch.parts[r.from:r.to] {
		if x.b.wanted() {
			return true
		}
	}
	return false
}

// done is called by the storage.
func (r *gatherRead) done(err error) {
	r.err = err
	g := r.stretch.g
	g.f.meter.Reading.End()
	long := g.f.verifier != nil || r.copied && len(r.read.Buf) > inlineCopyBytes
	if err == nil && long {
		g.f.meter.Queued[meter.Gather].Add(1)
		if g.work.add(r) {
			return
		}
		g.f.meter.Queued[meter.Gather].Add(-1)
	}
	r.finish()
}

// finish hands the bytes of a read on to its parts, or its error.
func (r *gatherRead) finish() {
	st := r.stretch
	g := st.g
	g.underWay.Add(-1)
	off := r.err == storage.ErrUnwanted
	switch {
	case off:
		g.f.counts.readsCancelled.Add(1)
		g.f.counts.bytesCancelled.Add(uint64(len(r.read.Buf)))
	case r.err != nil:
		g.note(r.err)
	default:
		g.reads.Add(1)
		g.f.counts.bytesRead.Add(uint64(len(r.read.Buf)))
	}
	for _, x := range st.parts[r.from:r.to] {
		if off {
			x.b.down() // nobody looks at its records any more
			continue
		}
		if r.err != nil {
			x.b.fail(x.record, fault{err: r.err})
		} else if r.copied {
			copy(x.b.block.Mem[x.to:x.to+x.size], r.read.Buf[x.at:])
		}
		x.b.came(x.record, r)
	}
	st.down()
	g.f.running.Done()
}

// down counts one read off; the stretch is free with the last.
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
