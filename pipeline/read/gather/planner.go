package gather

import (
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
)

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
func (p *planner) fill(x chunkmap.Index, seq pinned.Sequence, k uint64, bytes int64, records int, newBatch func(from uint64, bytes int64) (*batch, error)) error {
	var b *batch
	p.epoch = pinned.EpochOf(seq)
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
