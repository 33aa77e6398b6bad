package gather

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
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

// lookupRecords is how many records are looked up at a time.
const lookupRecords = 256

// planner plans the reads of a stretch: consecutive batches. It does not read, and reuses its
// memory for the next stretch.
type planner struct {
	planner    *plan.Planner
	blockBytes int64
	request    plan.Request
	places     []place // of request.Want
	batches    []*batch
	cuts       []cutRead
	epoch      uint64 // of the sequence

	// Scratch space of callers.
	numbers []uint64
	extents []catalog.Extent
}

// place is where a wanted range goes: to offset to in the block of a batch.
type place struct {
	b      *batch
	record int
	to     int64
}

// cutRead is one read: directly to where its bytes belong, or to scratch memory, from which its
// parts are copied.
type cutRead struct {
	object    int
	off, size int64
	parts     []plan.Part
	b         *batch // nil for a read to scratch memory
	to        int64  // in the block
	scratch   int    // number of the scratch block
}

// newPlanner plans for the storage, but limits reads of several records to the size of the block
// from which they are copied. Reads of single records go to their own places.
func newPlanner(pc plan.Config, blockBytes int64, objectBytes []int64) (*planner, error) {
	if pc.MaxReadBytes > blockBytes && pc.MaxVectors != 1 {
		pc.MaxReadBytes = max(blockBytes&^(pc.AlignBytes-1), pc.AlignBytes)
	}
	p, err := plan.New(pc)
	if err != nil {
		return nil, err
	}
	return &planner{
		planner: p, blockBytes: blockBytes, request: plan.Request{ObjectBytes: objectBytes},
		numbers: make([]uint64, lookupRecords), extents: make([]catalog.Extent, lookupRecords),
	}, nil
}

// reset clears the plan.
func (p *planner) reset() {
	clear(p.places)
	clear(p.batches)
	clear(p.cuts)
	p.request.Want, p.places, p.batches, p.cuts = p.request.Want[:0], p.places[:0], p.batches[:0], p.cuts[:0]
}

// fill lays out the records of a sequence in new batches, from record k on: that many bytes and
// records, or fewer if newBatch fails.
func (p *planner) fill(x chunkmap.Index, seq chunkmap.Sequence, k uint64, bytes int64, records int, newBatch func(from uint64, bytes int64) (*batch, error)) error {
	var b *batch
	p.epoch = chunkmap.EpochOf(seq)
	for records > 0 {
		m := seq.Records(k, p.numbers[:min(records, len(p.numbers))])
		if m == 0 {
			return nil
		}
		x.Extents(p.numbers[:m], p.extents[:m])
		for _, e := range p.extents[:m] {
			if b != nil && bytes <= 0 {
				return nil
			}
			if b == nil || !b.fits(e.SizeBytes) {
				var err error
				if b, err = newBatch(k, e.SizeBytes); err != nil {
					return err
				}
				p.batches = append(p.batches, b)
			}
			b.offs = append(b.offs, b.used()+e.SizeBytes)
			p.place(b, b.records()-1, e)
			bytes -= e.SizeBytes
			k++
		}
		records -= m
	}
	return nil
}

// place adds the bytes of a batch's record to the request.
func (p *planner) place(b *batch, i int, x catalog.Extent) {
	size := min(x.SizeBytes, p.request.ObjectBytes[x.Shard]-x.OffsetBytes) // a last line's newline may not be in the shard
	p.request.Want = append(p.request.Want, plan.Range{Object: x.Shard, OffsetBytes: x.OffsetBytes, SizeBytes: size})
	p.places = append(p.places, place{b, i, b.offs[i]})
}

// addNewlines writes the newlines that are not in their shards.
func (p *planner) addNewlines() {
	for w, r := range p.request.Want {
		if at := p.places[w]; at.to+r.SizeBytes < at.b.offs[at.record+1] {
			at.b.block.Mem[at.to+r.SizeBytes] = '\n'
		}
	}
}

// expect sets in how many parts each record of the new batches will arrive. Until they are begun,
// none of them is complete.
func (p *planner) expect(pl *plan.Plan, verifier format.Verifier) {
	for _, b := range p.batches {
		b.counts()
		b.begin()
	}
	for w, at := range p.places {
		n := int32(len(pl.Sources(w)))
		at.b.expect(at.record, n, verifier != nil)
		if n == 0 && verifier != nil {
			at.b.check(at.record, verifier, nil) // reported when it is asked for
		}
	}
}

// cut makes the reads of a plan. newScratch reports whether there is one more block in which to
// read several records together; if not, they are read one by one.
func (p *planner) cut(pl *plan.Plan, newScratch func() bool) {
	blocks, used := 0, p.blockBytes
	for i := range pl.Reads {
		r := pl.Reads[i]
		c := cutRead{object: r.Object, off: r.OffsetBytes, size: r.SizeBytes, parts: pl.Parts(i)}
		if p.straight(&c) {
			p.cuts = append(p.cuts, c)
			continue
		}
		if used+c.size > p.blockBytes && c.size <= p.blockBytes && newScratch() {
			blocks, used = blocks+1, 0
		}
		if used+c.size > p.blockBytes {
			p.apart(c)
			continue
		}
		c.scratch, c.to = blocks-1, used
		used += (c.size + 63) &^ 63
		p.cuts = append(p.cuts, c)
	}
}

// straight reports whether a read's bytes are laid out in memory as in the shard, and sets where.
func (p *planner) straight(c *cutRead) bool {
	first := p.places[c.parts[0].Want]
	begin := first.to + c.parts[0].WantOffset
	at := int64(0)
	for _, x := range c.parts {
		place := p.places[x.Want]
		if place.b != first.b || x.ReadOffset != at || place.to+x.WantOffset != begin+at {
			return false
		}
		at += x.SizeBytes
	}
	c.b, c.to = first.b, begin
	return at == c.size
}

// apart reads each part separately.
func (p *planner) apart(c cutRead) {
	for i, x := range c.parts {
		place := p.places[x.Want]
		p.cuts = append(p.cuts, cutRead{
			object: c.object, off: c.off + x.ReadOffset, size: x.SizeBytes, parts: c.parts[i : i+1],
			b: place.b, to: place.to + x.WantOffset,
		})
	}
}

// readQueue passes completed reads to the goroutines that copy and verify them. It needs no limit
// of its own: it holds at most the reads in progress, each of which has its memory.
type readQueue struct {
	mu          sync.Mutex
	some        sync.Cond
	first, last *read
	closed      bool
}

func (q *readQueue) init() { q.some.L = &q.mu }

// add never blocks; it returns false after close.
func (q *readQueue) add(r *read) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	r.next = nil
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
	q.some.Signal()
	return true
}

// next waits for a read, and returns nil when the queue is closed and empty. The caller counts as
// working except while it waits.
func (q *readQueue) next(work *meter.Level) *read {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.first == nil && !q.closed {
		work.End(meter.Now())
		q.some.Wait()
		work.Begin(meter.Now())
	}
	r := q.first
	if r != nil {
		q.first = r.next
	}
	return r
}

func (q *readQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.some.Broadcast()
}
