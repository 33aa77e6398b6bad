package budget

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/uring"
)

const (
	// Blocks are large enough that a reply of 1 MiB comes from two of them, and small enough that a
	// small budget still has 32.
	maxBlockBytes = 1 << 20
	minBlockBytes = 64 << 10
	// slabBudget is the budget from which on blocks are cut from memory in huge pages.
	slabBudget = 64 << 20
)

// Blocks is memory that readers share: blocks of one size, and larger ones for larger records.
// Freed blocks are kept for reuse, so that in steady state nothing is mapped. Its methods may be
// called concurrently.
type Blocks struct {
	BlockBytes int64        // size of an ordinary block
	Released   func([]byte) // tests overwrite released memory

	full   int64        // the initial budget
	budget atomic.Int64 // above it nothing is mapped, except for readers that wait

	mu     sync.Mutex
	free   []Block
	slabs  []*slab
	mapped int64 // bytes, including free ones
}

// slab is memory in huge pages that is cut into blocks.
type slab struct {
	mem []byte
	out int // blocks that are not free
}

// Block is memory of Blocks. The zero value has none.
type Block struct {
	Mem  []byte
	slab *slab // that it is a part of: it is never unmapped alone
}

// NewBlocks returns Blocks whose size is a 32nd of the budget, but at most 1 MiB and at least 64
// KiB.
func NewBlocks(budget int64) *Blocks {
	n := int64(minBlockBytes)
	for n < maxBlockBytes && 2*n <= budget/32 {
		n *= 2
	}
	p := &Blocks{BlockBytes: n, full: budget}
	p.budget.Store(budget)
	return p
}

// BudgetBytes returns the number of bytes above which nothing is mapped, except for readers that
// wait.
func (p *Blocks) BudgetBytes() int64 { return p.budget.Load() }

// MostBytes returns the initial BudgetBytes.
func (p *Blocks) MostBytes() int64 { return p.full }

// Allow changes BudgetBytes. Blocks keep their size.
func (p *Blocks) Allow(bytes int64) { p.budget.Store(bytes) }

// Round returns the size of the block for n bytes.
func (p *Blocks) Round(n int64) int64 {
	return max(1, (n+p.BlockBytes-1)/p.BlockBytes) * p.BlockBytes
}

// Take returns a block of at least n bytes. It stays within the budget, and returns ErrNoRoom if
// that is used up, unless beyond is set.
func (p *Blocks) Take(n int64, beyond bool) (Block, error) {
	n = p.Round(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range slices.Backward(p.free) {
		if int64(len(b.Mem)) == n {
			p.free = slices.Delete(p.free, i, i+1)
			if b.slab != nil {
				b.slab.out++
			}
			return b, nil
		}
	}
	budget := p.budget.Load()
	for p.mapped+n > budget {
		if freed, err := p.unmapOne(); err != nil {
			return Block{}, err
		} else if !freed {
			break
		}
	}
	if p.mapped+n > budget && !beyond {
		return Block{}, ErrNoRoom
	}
	if n == p.BlockBytes && budget >= slabBudget && p.mapped+uring.HugePageBytes <= budget {
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
	mem, err := uring.Map(uring.HugePageBytes)
	if err != nil {
		return Block{}, err
	}
	p.mapped += uring.HugePageBytes
	s := &slab{mem, 1}
	p.slabs = append(p.slabs, s)
	n := p.BlockBytes
	for at := n; at < uring.HugePageBytes; at += n {
		p.free = append(p.free, Block{mem[at : at+n : at+n], s})
	}
	return Block{mem[:n:n], s}, nil
}

// unmapOne unmaps a free block that is not part of a slab or, if the budget was lowered, a slab of
// which all blocks are free.
func (p *Blocks) unmapOne() (bool, error) {
	i := slices.IndexFunc(p.free, func(b Block) bool { return b.slab == nil })
	if i < 0 {
		return p.unmapSlab()
	}
	b := p.free[i]
	p.free = slices.Delete(p.free, i, i+1)
	p.mapped -= int64(len(b.Mem))
	return true, uring.Unmap(b.Mem)
}

func (p *Blocks) unmapSlab() (bool, error) {
	if p.budget.Load() >= p.full {
		return false, nil
	}
	i := slices.IndexFunc(p.slabs, func(s *slab) bool { return s.out == 0 })
	if i < 0 {
		return false, nil
	}
	s := p.slabs[i]
	p.slabs = slices.Delete(p.slabs, i, i+1)
	p.free = slices.DeleteFunc(p.free, func(b Block) bool { return b.slab == s })
	p.mapped -= int64(len(s.mem))
	return true, uring.Unmap(s.mem)
}

// Trim unmaps free blocks as long as the budget is exceeded.
func (p *Blocks) Trim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mapped > p.budget.Load() {
		if freed, err := p.unmapOne(); err != nil || !freed {
			return err
		}
	}
	return nil
}

// Give takes a block back. Memory beyond the budget is unmapped.
func (p *Blocks) Give(b Block) error {
	if p.Released != nil {
		p.Released(b.Mem)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	beyond := p.mapped > p.budget.Load()
	if beyond && b.slab == nil {
		p.mapped -= int64(len(b.Mem))
		return uring.Unmap(b.Mem)
	}
	p.free = append(p.free, b)
	if b.slab == nil {
		return nil
	}
	b.slab.out--
	if !beyond || b.slab.out > 0 {
		return nil
	}
	_, err := p.unmapSlab()
	return err
}

// Room reports whether n more bytes are available within the budget.
func (p *Blocks) Room(n int64) bool {
	n = p.Round(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	have := int64(0)
	for _, b := range p.free {
		if b.slab == nil || int64(len(b.Mem)) == n {
			have += int64(len(b.Mem))
		}
	}
	return p.mapped-have+n <= p.budget.Load()
}

// Held returns how many bytes are mapped.
func (p *Blocks) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mapped
}

// Close unmaps all blocks that were given back.
func (p *Blocks) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, b := range p.free {
		if b.slab != nil {
			continue
		}
		p.mapped -= int64(len(b.Mem))
		keep(uring.Unmap(b.Mem))
	}
	// A slab of which a block is still pinned stays mapped: a leak is better than records that
	// change.
	for _, s := range p.slabs {
		if s.out == 0 {
			p.mapped -= int64(len(s.mem))
			keep(uring.Unmap(s.mem))
		}
	}
	p.slabs, p.free = nil, nil
	return first
}
