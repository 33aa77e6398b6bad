package fetch

import (
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

const (
	// maxStretchRecords bounds the tables of tiny records.
	maxStretchRecords = 8192
	// A reader's first stretch beyond what was asked for, and the largest one:
	// from there on larger ones merged hardly more.
	firstStretchBytes = 256 << 10
	maxStretchBytes   = 8 << 20
	// inlineCopyBytes is up to how many bytes are copied to their place by the
	// one who brings them; for more it would keep the engine from its work.
	inlineCopyBytes = 16 << 10
)

// stretch is the reads of some consecutive batches, planned together. It is
// used again when all have come.
type stretch struct {
	g       *gatherer
	reads   []gatherRead
	parts   []gatherPart
	scratch []block
	used    int64 // of the last of scratch
	most    int   // of scratch
	pending atomic.Int32
}

// gatherRead is one read: straight to its place, or to scratch memory, from
// where its parts are copied.
type gatherRead struct {
	read     storage.Read
	stretch  *stretch
	from, to int // its parts
	copied   bool
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

// planner makes stretches; it keeps its memory from one to the next.
type planner struct {
	planner *plan.Planner
	request plan.Request
	places  []gatherPlace // of request.Want
	numbers []uint64
	extents []catalog.Extent
	batches []*batch
	submit  []*storage.Read
}

// gatherPlace is where a wanted range goes.
type gatherPlace struct {
	b      *batch
	record int
	to     int64
}

func newPlanner(c plan.Config, objectBytes []int64) (*planner, error) {
	p, err := plan.New(c)
	if err != nil {
		return nil, err
	}
	return &planner{
		planner: p, request: plan.Request{ObjectBytes: objectBytes},
		numbers: make([]uint64, lendBlock), extents: make([]catalog.Extent, lendBlock),
	}, nil
}

// add appends a record to a batch, and to what is wanted.
func (p *planner) add(b *batch, x catalog.Extent) {
	b.offs = append(b.offs, b.used()+x.SizeBytes)
	p.place(b, b.records()-1, x)
}

// place wants the bytes of a batch's record.
func (p *planner) place(b *batch, i int, x catalog.Extent) {
	to, size := b.offs[i], x.SizeBytes
	if over := x.OffsetBytes + size - p.request.ObjectBytes[x.Shard]; over > 0 {
		size -= over // a last line's newline that the shard does not have
		b.block.mem[to+size] = '\n'
	}
	p.request.Want = append(p.request.Want, plan.Range{Object: x.Shard, OffsetBytes: x.OffsetBytes, SizeBytes: size})
	p.places = append(p.places, gatherPlace{b, i, to})
}

// reset forgets what was planned.
func (p *planner) reset() {
	clear(p.places)
	clear(p.batches)
	clear(p.submit)
	p.request.Want, p.places, p.batches, p.submit = p.request.Want[:0], p.places[:0], p.batches[:0], p.submit[:0]
}

// straight says whether a read's bytes lie in memory as in the shard, and where.
func (p *planner) straight(parts []plan.Part, size int64) (*batch, int64, bool) {
	first := p.places[parts[0].Want]
	begin := first.to + parts[0].WantOffset
	at := int64(0)
	for _, x := range parts {
		place := p.places[x.Want]
		if place.b != first.b || x.ReadOffset != at || place.to+x.WantOffset != begin+at {
			return nil, 0, false
		}
		at += x.SizeBytes
	}
	return first.b, begin, at == size
}

// count tells the batches how many parts each of their records comes in. Until
// they are begun, none of them is complete.
func (p *planner) count(pl *plan.Plan, verifier unpack.Verifier) {
	for _, b := range p.batches {
		b.left = slices.Grow(b.left[:0], b.records())[:b.records()]
		b.begin()
	}
	for w, place := range p.places {
		n := int32(len(pl.Sources(w)))
		place.b.expect(place.record, n, verifier != nil)
		if n == 0 && verifier != nil {
			_ = place.b.check(place.record, verifier) // told when it is to be lent
		}
	}
}

// cut makes the reads of a plan.
func (st *stretch) cut(p *planner, pl *plan.Plan) {
	parts := 0
	for w := range p.places {
		parts += len(pl.Sources(w))
	}
	st.ready(parts)
	for i := range pl.Reads {
		r, parts := pl.Reads[i], pl.Parts(i)
		if b, to, ok := p.straight(parts, r.SizeBytes); ok {
			st.add(p, r.Object, r.OffsetBytes, b.block.mem[to:to+r.SizeBytes:to+r.SizeBytes], parts, false)
		} else if mem := st.scratchFor(r.SizeBytes); mem != nil {
			st.add(p, r.Object, r.OffsetBytes, mem, parts, true)
		} else {
			for j, x := range parts { // no memory to read them together
				place := p.places[x.Want]
				to := place.to + x.WantOffset
				st.add(p, r.Object, r.OffsetBytes+x.ReadOffset, place.b.block.mem[to:to+x.SizeBytes:to+x.SizeBytes], parts[j:j+1], false)
			}
		}
	}
}

// ready makes room for n reads with as many parts, so that none of them moves.
func (st *stretch) ready(n int) {
	if cap(st.reads) < n {
		st.reads = make([]gatherRead, 0, 1<<bits.Len(uint(n)))
	}
	st.parts = slices.Grow(st.parts[:0], n)
}

// add appends a read, of which there is room for one.
func (st *stretch) add(p *planner, object int, off int64, mem []byte, parts []plan.Part, copied bool) {
	n := len(st.reads)
	st.reads = st.reads[:n+1]
	r := &st.reads[n]
	if r.read.Done == nil {
		r.read.Done, r.stretch = r.done, st
	}
	r.read.Object, r.read.OffsetBytes, r.read.Buf = st.g.object(object), off, mem
	r.copied, r.err, r.from = copied, nil, len(st.parts)
	for _, x := range parts {
		place := p.places[x.Want]
		st.parts = append(st.parts, gatherPart{place.b, place.record, x.ReadOffset, place.to + x.WantOffset, x.SizeBytes})
	}
	if !copied && len(parts) == 1 {
		st.parts[r.from].at = 0
	}
	r.to = len(st.parts)
	p.submit = append(p.submit, &r.read)
}

// scratchFor gives memory for a read whose bytes are copied from there, nil
// where there is none to spare.
func (st *stretch) scratchFor(n int64) []byte {
	pool := st.g.pool
	if n > pool.blockBytes {
		return nil
	}
	if len(st.scratch) == 0 || st.used+n > pool.blockBytes {
		if len(st.scratch) >= st.most {
			return nil
		}
		b, err := pool.take(n, false)
		if err != nil {
			return nil // the reads that go straight to their places say it
		}
		st.scratch, st.used = append(st.scratch, b), 0
	}
	at := st.used
	st.used += (n + 63) &^ 63
	return st.scratch[len(st.scratch)-1].mem[at : at+n : at+n]
}

// done is called by the storage.
func (r *gatherRead) done(err error) {
	r.err = err
	g := r.stretch.g
	long := g.f.verifier != nil || r.copied && len(r.read.Buf) > inlineCopyBytes
	if err == nil && long && g.work.add(r) {
		return
	}
	r.finish()
}

// finish hands the bytes of a read on to its parts, or its error.
func (r *gatherRead) finish() {
	st := r.stretch
	g := st.g
	if r.err != nil {
		g.note(r.err)
	} else {
		g.reads.Add(1)
		g.readBytes.Add(uint64(len(r.read.Buf)))
	}
	for _, x := range st.parts[r.from:r.to] {
		if r.err != nil {
			x.b.fail(x.record, fault{err: r.err})
		} else if r.copied {
			copy(x.b.block.mem[x.to:x.to+x.size], r.read.Buf[x.at:])
		}
		if err := x.b.came(x.record, g.f.verifier); err != nil {
			g.note(fmt.Errorf("%s: %w", r.read.Object.Path, err))
		}
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
	st.g.freeStretch(st)
}
