package diskcache

import (
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

// Want implements storage.Hints. What is missing of the blocks is fetched into the cache, in the order
// in which they are due, as long as there is room. The storage below gets the hint as well, so that it
// makes reads in that order.
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

// Use implements storage.Hints. RoomBytes is what the bound leaves to this mount now. It is 0 if pages
// can't be freed one by one, because then what passes through can't be kept.
func (s *Storage) Use() storage.HintUse {
	return storage.HintUse{Keeps: true, RoomBytes: s.room.roomBytes()}
}

// SetShare implements storage.Hints.
func (s *Storage) SetShare(bytes int64) { s.room.setShare(bytes) }
