package cached

import (
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// chunk is a want's range.
type chunk struct {
	object storage.Object
	off, n int64
}

func chunkOf(w storage.Want) chunk { return chunk{w.Object, w.OffsetBytes, w.SizeBytes} }

// plans are what readers have said.
type plans struct {
	mu      sync.Mutex
	readers map[uint64]*plan
	holders map[chunk]int // how many readers have planned it, and not done
}

// plan is what one reader has said.
type plan struct {
	next []storage.Want // that were not begun
	held map[chunk]struct{}
}

func newPlans() plans { return plans{readers: map[uint64]*plan{}, holders: map[chunk]int{}} }

func (p *plans) set(reader uint64, wants []storage.Want) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.readers[reader]
	if of == nil {
		of = &plan{held: map[chunk]struct{}{}}
		p.readers[reader] = of
	}
	of.next = append(of.next[:0], wants...)
	for i := range wants {
		if c := chunkOf(wants[i]); !has(of.held, c) {
			of.held[c] = struct{}{}
			p.holders[c]++
		}
	}
}

func has[K comparable](set map[K]struct{}, k K) bool {
	_, ok := set[k]
	return ok
}

// next takes out the want that is due first.
func (p *plans) next() (w storage.Want, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var of *plan
	for _, r := range p.readers {
		if len(r.next) > 0 && (of == nil || r.next[0].DueBytes < of.next[0].DueBytes) {
			of = r
		}
	}
	if of == nil {
		return w, false
	}
	w, of.next = of.next[0], of.next[1:]
	return w, true
}

// holds says whether any reader still wants a chunk.
func (p *plans) holds(c chunk) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holders[c] > 0
}

// done says whether the reader was the last who wanted a chunk. One that nobody has
// planned is free as well.
func (p *plans) done(reader uint64, c chunk) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.readers[reader]; of != nil && has(of.held, c) {
		delete(of.held, c)
		p.holders[c]--
	}
	if p.holders[c] > 0 {
		return false
	}
	delete(p.holders, c)
	return true
}

// forget ends a reader, and gives the chunks that it was the last to want.
func (p *plans) forget(reader uint64) (last []chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.readers[reader]
	if of == nil {
		return nil
	}
	delete(p.readers, reader)
	for c := range of.held {
		if p.holders[c]--; p.holders[c] <= 0 {
			delete(p.holders, c)
			last = append(last, c)
		}
	}
	return last
}

// Plan implements storage.Planner. What is missing of the chunks is brought into the cache, the
// ones that are due first before the others, where there is room for it.
func (s *Storage) Plan(reader uint64, wants []storage.Want) {
	s.ahead.plans.set(reader, wants)
	s.ahead.poke()
}

// Done implements storage.Planner. What is of the chunk in the share is freed once no reader
// wants it. It may wait for the disk.
func (s *Storage) Done(reader uint64, o storage.Object, off, n int64) {
	if c := (chunk{o, off, n}); s.ahead.plans.done(reader, c) {
		s.doneWith(c)
	}
}

// Forget implements storage.Planner.
func (s *Storage) Forget(reader uint64) {
	for _, c := range s.ahead.plans.forget(reader) {
		s.doneWith(c)
	}
}
