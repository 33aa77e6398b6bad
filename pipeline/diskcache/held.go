package diskcache

import (
	"cmp"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// heldChunks are the chunks that readers have announced and not passed, by object, ordered by
// offset.
type heldChunks map[storage.Object][]span

func compareSpans(a, b span) int { return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.n, b.n)) }

// add adds a chunk that it does not have yet. It ignores a chunk that is not within its object.
func (h heldChunks) add(c chunk) {
	if !c.sound() {
		return
	}
	i, _ := slices.BinarySearchFunc(h[c.object], span{c.off, c.n}, compareSpans)
	h[c.object] = slices.Insert(h[c.object], i, span{c.off, c.n})
}

// remove removes a chunk, if it has it.
func (h heldChunks) remove(c chunk) {
	of := h[c.object]
	i, found := slices.BinarySearchFunc(of, span{c.off, c.n}, compareSpans)
	if !found {
		return
	}
	if of = slices.Delete(of, i, i+1); len(of) == 0 {
		delete(h, c.object)
		return
	}
	h[c.object] = of
}

// touched appends the chunks that have bytes in [begin, end). Chunks of one order don't overlap; if
// others do, only the last of those that begin before the range is considered.
func (h heldChunks) touched(chunks []chunk, o storage.Object, begin, end int64) []chunk {
	of := h[o]
	i, _ := slices.BinarySearchFunc(of, begin, func(s span, begin int64) int { return cmp.Compare(s.off, begin) })
	for i = max(0, i-1); i < len(of) && of[i].off < end; i++ {
		if of[i].off+of[i].n > begin {
			chunks = append(chunks, chunk{o, of[i].off, of[i].n})
		}
	}
	return chunks
}

// touched returns the announced chunks, in order, that have bytes of the op on missing pages.
func (x *op) touched(gone []run) (chunks []chunk) {
	p := &x.s.ahead.plans
	p.mu.Lock()
	defer p.mu.Unlock()
	off, until := x.read.OffsetBytes, x.read.OffsetBytes+int64(len(x.read.Buf))
	for _, r := range gone {
		chunks = p.held.touched(chunks, x.object.listed, max(off, r.begin*pageBytes), min(until, r.end*pageBytes))
	}
	return slices.Compact(chunks)
}

// covered returns those of the chunks that the op reads completely.
func (x *op) covered(chunks []chunk) (all []chunk) {
	off, until := x.read.OffsetBytes, x.read.OffsetBytes+int64(len(x.read.Buf))
	for _, c := range chunks {
		if off <= c.off && c.off+c.n <= until {
			all = append(all, c)
		}
	}
	return all
}

// bringChunks makes flights for what is missing of announced chunks of which a reader wants a part,
// so that each chunk is requested once, no matter which part of it is read first. If there is no
// room for all of a chunk, the op fetches only what it wants; likewise if it wants most of a chunk
// and the disk is slow. x.object.mu is held; the caller launches the flights.
func (x *op) bringChunks(chunks []chunk) (fresh []*flight) {
	for _, c := range chunks {
		why := toGather
		if n := int64(len(x.read.Buf)); n >= c.n/2 || n >= x.s.config.MaxReadBytes {
			why = toRead
		}
		begun, _ := x.s.flightsFor(x.object, runOf(c.off, c.n), why)
		for _, f := range begun {
			x.s.ahead.brings(f, c)
		}
		fresh = append(fresh, begun...)
	}
	return fresh
}
