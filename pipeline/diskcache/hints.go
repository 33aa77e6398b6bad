package diskcache

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// chunk is the range of a block.
type chunk struct {
	object storage.Object
	off, n int64
}

func chunkOf(w storage.Block) chunk { return chunk{w.Object, w.OffsetBytes, w.SizeBytes} }

// sound reports whether the object has such a range.
func (c chunk) sound() bool {
	return c.off >= 0 && c.n > 0 && c.n <= c.object.SizeBytes && c.off <= c.object.SizeBytes-c.n
}

// plans is what readers have announced.
type plans struct {
	mu      sync.Mutex
	readers map[uint64]*plan
	holders map[chunk]int // how many readers have announced it, and not passed
	held    heldChunks    // those with a holder
}

// plan is what one reader has announced.
type plan struct {
	next []storage.Block // not started
	held map[chunk]bool  // announced and not passed; true: started
}

func newPlans() plans {
	return plans{readers: map[uint64]*plan{}, holders: map[chunk]int{}, held: heldChunks{}}
}

func (p *plans) set(reader uint64, blocks []storage.Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.readers[reader]
	if of == nil {
		of = &plan{held: map[chunk]bool{}}
		p.readers[reader] = of
	}
	of.next = of.next[:0]
	for i := range blocks {
		c := chunkOf(blocks[i])
		begun, held := of.held[c]
		if !held {
			of.held[c] = false
			if p.holders[c]++; p.holders[c] == 1 {
				p.held.add(c)
			}
		}
		if !begun {
			of.next = append(of.next, blocks[i])
		}
	}
}

// next returns the block that is due first, of those that are not started, and its reader.
func (p *plans) next() (reader uint64, w storage.Block, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, of := range p.readers {
		for len(of.next) > 0 && of.held[chunkOf(of.next[0])] {
			of.next = of.next[1:] // it was read meanwhile
		}
		if len(of.next) > 0 && (!ok || of.next[0].DueBytes < w.DueBytes) {
			reader, w, ok = r, of.next[0], true
		}
	}
	return reader, w, ok
}

// begun removes the block that next returned, so that it is not started again.
func (p *plans) begun(reader uint64, w storage.Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.readers[reader]
	if of == nil || len(of.next) == 0 || of.next[0] != w {
		return // the reader has announced another list meanwhile, or has ended
	}
	of.next = of.next[1:]
	if _, held := of.held[chunkOf(w)]; held {
		of.held[chunkOf(w)] = true
	}
}

// read removes chunks that a reader is reading completely now: they need not be fetched in advance.
// If there were no room for one of them, it would be requested twice.
func (p *plans) read(chunks []chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.readers {
		for _, c := range chunks {
			if _, held := of.held[c]; held {
				of.held[c] = true
			}
		}
	}
}

// wait reports whether there is a block that is not started.
func (p *plans) wait() bool {
	_, _, ok := p.next()
	return ok
}

// holds reports whether any reader still wants a chunk.
func (p *plans) holds(c chunk) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holders[c] > 0
}

// done reports whether no reader wants a chunk any more, now that this reader does not. A chunk
// that was never announced is not wanted either.
func (p *plans) done(reader uint64, c chunk) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.readers[reader]; of != nil {
		if _, held := of.held[c]; held {
			delete(of.held, c)
			p.release(c)
		}
	}
	return p.holders[c] == 0
}

// forget ends a reader, and returns the chunks that no other reader wants.
func (p *plans) forget(reader uint64) (last []chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.readers[reader]
	if of == nil {
		return nil
	}
	delete(p.readers, reader)
	for c := range of.held {
		if p.release(c) {
			last = append(last, c)
		}
	}
	return last
}

// release counts one holder less, and reports whether it was the last. p.mu is held.
func (p *plans) release(c chunk) bool {
	if p.holders[c]--; p.holders[c] > 0 {
		return false
	}
	delete(p.holders, c)
	p.held.remove(c)
	return true
}

// Want implements storage.Hints. What is missing of the blocks is fetched into the cache, in the
// order in which they are due, as long as there is room. The storage below gets the hint as well,
// so that it makes reads in that order.
func (s *Storage) Want(reader uint64, blocks []storage.Block) {
	if below := s.caps.Hints; below != nil {
		below.Want(reader, blocks)
	}
	s.ahead.plans.set(reader, blocks)
	s.ahead.read()
	s.ahead.poke()
}

// Passed implements storage.Hints. What the share holds of the blocks is freed soon, once no reader
// wants them.
func (s *Storage) Passed(reader uint64, blocks []storage.Block) {
	if below := s.caps.Hints; below != nil {
		below.Passed(reader, blocks)
	}
	for _, b := range blocks {
		if c := chunkOf(b); s.ahead.plans.done(reader, c) {
			s.free(c)
		}
	}
}

// Drop implements storage.Hints.
func (s *Storage) Drop(reader uint64) {
	if below := s.caps.Hints; below != nil {
		below.Drop(reader)
	}
	for _, c := range s.ahead.plans.forget(reader) {
		s.free(c)
	}
}

// Use implements storage.Hints. RoomBytes is what the bound leaves to this mount now. It is 0 if
// pages can't be freed one by one, because then what passes through can't be kept.
func (s *Storage) Use() storage.HintUse {
	return storage.HintUse{Keeps: true, RoomBytes: s.room.roomBytes()}
}

// SetShare implements storage.Hints.
func (s *Storage) SetShare(bytes int64) { s.room.setShare(bytes) }

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

// ownReader is the reader as which the cache itself gives hints to the storage below. Others are
// numbered from 1.
const ownReader = math.MaxUint64

// promote moves flights that a reader waits for before everything that was only announced, and
// before the rest of the fill.
func (s *Storage) promote(flights []*flight) {
	if s.caps.Hints == nil || len(flights) == 0 {
		return
	}
	s.promoting.Lock()
	defer s.promoting.Unlock()
	s.urgent = slices.DeleteFunc(append(s.urgent, flights...), (*flight).isBack)
	blocks := make([]storage.Block, len(s.urgent))
	for i, f := range s.urgent {
		blocks[i] = storage.Block{Object: f.object.listed, OffsetBytes: f.pages.begin * pageBytes, SizeBytes: f.pages.bytes()}
	}
	s.caps.Hints.Want(ownReader, blocks)
}

// isBack reports whether the storage below has nothing more to do for the flight.
func (f *flight) isBack() bool {
	f.object.mu.Lock()
	defer f.object.mu.Unlock()
	return f.arrived || f.gone
}

// unpromote removes a flight that has ended from those that were promoted.
func (s *Storage) unpromote(f *flight) {
	s.promoting.Lock()
	defer s.promoting.Unlock()
	if i := slices.Index(s.urgent, f); i >= 0 {
		s.urgent = slices.Delete(s.urgent, i, i+1)
	}
}
