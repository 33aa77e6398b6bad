package fetch

import (
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/uring"
)

const (
	// Blocks are large enough that a reply of 1 MiB comes from two of them,
	// small enough that a small budget still has 32.
	maxBlockBytes = 1 << 20
	minBlockBytes = 64 << 10
	// slabBudget is from where on blocks are cut from memory in huge pages.
	slabBudget = 64 << 20
)

// blockPool is the memory that all gathering readers share: blocks of one size,
// and larger ones for larger records. What is given back is kept for the next,
// so that in steady state nothing is mapped. Its methods may be called
// concurrently.
type blockPool struct {
	blockBytes int64
	budget     int64
	released   func([]byte) // tests overwrite what is given back

	mu     sync.Mutex
	free   []block
	slabs  [][]byte
	mapped int64 // bytes, free ones too
}

// block is memory of a pool.
type block struct {
	mem  []byte
	slab bool // a part of a slab: never unmapped alone
}

func newBlockPool(budget int64) *blockPool {
	n := int64(minBlockBytes)
	for n < maxBlockBytes && 2*n <= budget/32 {
		n *= 2
	}
	return &blockPool{blockBytes: n, budget: budget}
}

// round is the size of the block that n bytes get.
func (p *blockPool) round(n int64) int64 {
	return max(1, (n+p.blockBytes-1)/p.blockBytes) * p.blockBytes
}

// take gives a block of at least n bytes: within the budget, errNoRoom where
// that is used up, or, beyond says, in any case.
func (p *blockPool) take(n int64, beyond bool) (block, error) {
	n = p.round(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range slices.Backward(p.free) {
		if int64(len(b.mem)) == n {
			p.free = slices.Delete(p.free, i, i+1)
			return b, nil
		}
	}
	for p.mapped+n > p.budget {
		if freed, err := p.unmapOne(); err != nil {
			return block{}, err
		} else if !freed {
			break
		}
	}
	if p.mapped+n > p.budget && !beyond {
		return block{}, errNoRoom
	}
	if n == p.blockBytes && p.budget >= slabBudget && p.mapped+uring.HugePageBytes <= p.budget {
		return p.cutSlab()
	}
	mem, err := uring.Map(int(n))
	if err != nil {
		return block{}, err
	}
	p.mapped += n
	return block{mem: mem}, nil
}

func (p *blockPool) cutSlab() (block, error) {
	slab, err := uring.Map(uring.HugePageBytes)
	if err != nil {
		return block{}, err
	}
	p.mapped += uring.HugePageBytes
	p.slabs = append(p.slabs, slab)
	n := p.blockBytes
	for at := n; at < uring.HugePageBytes; at += n {
		p.free = append(p.free, block{slab[at : at+n : at+n], true})
	}
	return block{slab[:n:n], true}, nil
}

// unmapOne gives a free block that is no part of a slab back to the system.
func (p *blockPool) unmapOne() (bool, error) {
	i := slices.IndexFunc(p.free, func(b block) bool { return !b.slab })
	if i < 0 {
		return false, nil
	}
	b := p.free[i]
	p.free = slices.Delete(p.free, i, i+1)
	p.mapped -= int64(len(b.mem))
	return true, uring.Unmap(b.mem)
}

// give takes a block back. What is beyond the budget goes to the system.
func (p *blockPool) give(b block) error {
	if p.released != nil {
		p.released(b.mem)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mapped > p.budget && !b.slab {
		p.mapped -= int64(len(b.mem))
		return uring.Unmap(b.mem)
	}
	p.free = append(p.free, b)
	return nil
}

// room says whether n bytes more are to be had within the budget.
func (p *blockPool) room(n int64) bool {
	n = p.round(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	have := int64(0)
	for _, b := range p.free {
		if !b.slab || int64(len(b.mem)) == n {
			have += int64(len(b.mem))
		}
	}
	return p.mapped-have+n <= p.budget
}

// held is how much is mapped.
func (p *blockPool) held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mapped
}

// close unmaps all that was given back.
func (p *blockPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	cut := 0 // blocks of slabs
	for _, b := range p.free {
		if b.slab {
			cut++
			continue
		}
		p.mapped -= int64(len(b.mem))
		keep(uring.Unmap(b.mem))
	}
	// A slab of which a loan still has a block is left to it: a leak is better
	// than a loan that shows something else.
	if cut == len(p.slabs)*int(uring.HugePageBytes/p.blockBytes) {
		for _, slab := range p.slabs {
			p.mapped -= int64(len(slab))
			keep(uring.Unmap(slab))
		}
		p.slabs = nil
	}
	p.free = nil
	return first
}
