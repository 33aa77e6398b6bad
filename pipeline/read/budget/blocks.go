package budget

import (
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

	mu    sync.Mutex
	arena *uring.Arena
	taken int64 // bytes of the blocks that were taken and not given back
}

// Block is memory of Blocks. The zero value has none.
type Block struct {
	Mem  []byte
	slot *uring.Slot
}

// NewBlocks returns Blocks whose size is a 32nd of the budget, but at most 1 MiB and at least 64
// KiB.
func NewBlocks(budget int64) *Blocks {
	n := int64(minBlockBytes)
	for n < maxBlockBytes && 2*n <= budget/32 {
		n *= 2
	}
	p := &Blocks{BlockBytes: n, full: budget, arena: uring.NewArena(uring.ArenaConfig{BoundBytes: budget, SlabsFrom: slabBudget})}
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

// lock returns the arena, within the present budget. The caller unlocks mu.
func (p *Blocks) lock() *uring.Arena {
	p.mu.Lock()
	p.arena.Bound(p.budget.Load())
	return p.arena
}

// Take returns a block of at least n bytes. It stays within the budget, and returns ErrNoRoom if
// that is used up, unless beyond is set.
func (p *Blocks) Take(n int64, beyond bool) (Block, error) {
	a := p.lock()
	defer p.mu.Unlock()
	s, err := a.Take(p.Round(n), beyond)
	switch {
	case err != nil:
		return Block{}, err
	case s == nil:
		return Block{}, ErrNoRoom
	}
	p.taken += int64(len(s.Bytes))
	return Block{s.Bytes, s}, nil
}

// Trim unmaps free blocks as long as the budget is exceeded.
func (p *Blocks) Trim() error {
	a := p.lock()
	defer p.mu.Unlock()
	return a.Trim(a.MappedBytes() - a.BoundBytes())
}

// Give takes a block back. Memory beyond the budget is unmapped.
func (p *Blocks) Give(b Block) error {
	if p.Released != nil {
		p.Released(b.Mem)
	}
	a := p.lock()
	defer p.mu.Unlock()
	p.taken -= int64(len(b.Mem))
	return a.Give(b.slot)
}

// Room reports whether Take would return n bytes within the budget.
func (p *Blocks) Room(n int64) bool {
	a := p.lock()
	defer p.mu.Unlock()
	return a.HasRoom(p.Round(n))
}

// RoomBytes returns how much of the budget is not taken. Less of it may be available: the rest of a
// slab is for blocks of the same size.
func (p *Blocks) RoomBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.budget.Load()-p.taken, 0)
}

// Held returns how many bytes are mapped.
func (p *Blocks) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arena.MappedBytes()
}

// Close unmaps all blocks that were given back. A block that is still pinned stays mapped: a leak is
// better than records that change.
func (p *Blocks) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arena.Close()
}
