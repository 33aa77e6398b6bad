package budget

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

// Blocks is memory that readers share: blocks of one size, and larger ones for
// larger records. What is given back is kept for the next, so that in steady state
// nothing is mapped. Its methods may be called concurrently.
type Blocks struct {
	BlockBytes  int64        // size of an ordinary block
	BudgetBytes int64        // above which nothing is mapped for who does not wait
	Released    func([]byte) // tests overwrite what is given back

	mu     sync.Mutex
	free   []Block
	slabs  [][]byte
	mapped int64 // bytes, free ones too
}

// Block is memory of Blocks. The zero value has none.
type Block struct {
	Mem  []byte
	slab bool // a part of a slab: never unmapped alone
}

// NewBlocks makes blocks of a 32nd of the budget, at most 1 MiB and at least 64 KiB.
func NewBlocks(budget int64) *Blocks {
	n := int64(minBlockBytes)
	for n < maxBlockBytes && 2*n <= budget/32 {
		n *= 2
	}
	return &Blocks{BlockBytes: n, BudgetBytes: budget}
}

// Round is the size of the block that n bytes get.
func (p *Blocks) Round(n int64) int64 {
	return max(1, (n+p.BlockBytes-1)/p.BlockBytes) * p.BlockBytes
}

// Take gives a block of at least n bytes: within the budget, ErrNoRoom where
// that is used up, or, beyond says, in any case.
func (p *Blocks) Take(n int64, beyond bool) (Block, error) {
	n = p.Round(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range slices.Backward(p.free) {
		if int64(len(b.Mem)) == n {
			p.free = slices.Delete(p.free, i, i+1)
			return b, nil
		}
	}
	for p.mapped+n > p.BudgetBytes {
		if freed, err := p.unmapOne(); err != nil {
			return Block{}, err
		} else if !freed {
			break
		}
	}
	if p.mapped+n > p.BudgetBytes && !beyond {
		return Block{}, ErrNoRoom
	}
	if n == p.BlockBytes && p.BudgetBytes >= slabBudget && p.mapped+uring.HugePageBytes <= p.BudgetBytes {
		return p.cutSlab()
	}
	mem, err := uring.Map(int(n))
	if err != nil {
		return Block{}, err
	}
	p.mapped += n
	return Block{Mem: mem}, nil
}

func (p *Blocks) cutSlab() (Block, error) {
	slab, err := uring.Map(uring.HugePageBytes)
	if err != nil {
		return Block{}, err
	}
	p.mapped += uring.HugePageBytes
	p.slabs = append(p.slabs, slab)
	n := p.BlockBytes
	for at := n; at < uring.HugePageBytes; at += n {
		p.free = append(p.free, Block{slab[at : at+n : at+n], true})
	}
	return Block{slab[:n:n], true}, nil
}

// unmapOne gives a free block that is no part of a slab back to the system.
func (p *Blocks) unmapOne() (bool, error) {
	i := slices.IndexFunc(p.free, func(b Block) bool { return !b.slab })
	if i < 0 {
		return false, nil
	}
	b := p.free[i]
	p.free = slices.Delete(p.free, i, i+1)
	p.mapped -= int64(len(b.Mem))
	return true, uring.Unmap(b.Mem)
}

// Give takes a block back. What is beyond the budget goes to the system.
func (p *Blocks) Give(b Block) error {
	if p.Released != nil {
		p.Released(b.Mem)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mapped > p.BudgetBytes && !b.slab {
		p.mapped -= int64(len(b.Mem))
		return uring.Unmap(b.Mem)
	}
	p.free = append(p.free, b)
	return nil
}

// Room says whether n bytes more are to be had within the budget.
func (p *Blocks) Room(n int64) bool {
	n = p.Round(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	have := int64(0)
	for _, b := range p.free {
		if !b.slab || int64(len(b.Mem)) == n {
			have += int64(len(b.Mem))
		}
	}
	return p.mapped-have+n <= p.BudgetBytes
}

// Held is how many bytes are mapped.
func (p *Blocks) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mapped
}

// Close unmaps all that was given back.
func (p *Blocks) Close() error {
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
		p.mapped -= int64(len(b.Mem))
		keep(uring.Unmap(b.Mem))
	}
	// A slab of which a loan still has a block is left to it: a leak is better
	// than a loan that shows something else.
	if cut == len(p.slabs)*int(uring.HugePageBytes/p.BlockBytes) {
		for _, slab := range p.slabs {
			p.mapped -= int64(len(slab))
			keep(uring.Unmap(slab))
		}
		p.slabs = nil
	}
	p.free = nil
	return first
}
