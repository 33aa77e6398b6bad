package blockcache

import (
	"container/heap"
	"math"
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/uring"
)

// Cache keeps blocks in bounded memory. Its methods may be called concurrently.
type Cache[K comparable] struct {
	mu     sync.Mutex
	unused sync.Cond // signals that pinned has become 0
	arena  *uring.Arena
	blocks map[K]*Block[K] // those that have memory or are wanted
	// idle blocks are filled and not pinned. The first to evict is at the top.
	idle   idle[K]
	uses   uint64 // number of uses so far, the clock of Block.used
	wanted int    // total length of next of all blocks
	pinned int    // number of blocks that have users
	// pinnedBytes is the size of these blocks. Their slabs may be larger.
	pinnedBytes int64
	closed      bool
}

// Block is a block that is in memory or is wanted. It belongs to its Cache.
type Block[K comparable] struct {
	key    K
	slot   *uring.Slot // nil if it has no memory
	filled bool
	users  int
	used   uint64
	next   []uint64 // positions at which it is wanted, sorted
	at     int      // index in Cache.idle, or -1
}

// New returns an empty cache that maps up to maxBytes.
func New[K comparable](maxBytes int64) *Cache[K] {
	c := &Cache[K]{arena: uring.NewArena(uring.ArenaConfig{BoundBytes: maxBytes, SlabsFrom: 1}), blocks: map[K]*Block[K]{}}
	c.unused.L = &c.mu
	return c
}

// Bytes returns the memory of a pinned block. It is written by the caller of Fill, before Filled,
// and by no other.
func (b *Block[K]) Bytes() []byte { return b.slot.Bytes }

// Allow sets the bound from now on. Memory beyond it is freed at once, or as soon as no block in its
// way is pinned.
func (c *Cache[K]) Allow(maxBytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arena.Bound(maxBytes)
	_ = c.arena.Trim(c.arena.MappedBytes() - maxBytes) // nothing to do about it: only memory is lost
	c.shrink()
}

// shrink evicts blocks until what is mapped is within the bound, or the next one to evict shares its
// slab with a pinned one. It is called with mu held.
func (c *Cache[K]) shrink() {
	for c.arena.MappedBytes() > c.arena.BoundBytes() && len(c.idle) > 0 && c.evictAround(c.idle[0]) {
	}
}

// Stats describes a cache at one moment.
type Stats struct {
	HeldBytes int64 // mapped
	MaxBytes  int64 // the bound of HeldBytes
	Blocks    int   // in memory or wanted
	Wanted    int   // calls of Want without their Passed
}

// Stats returns the current statistics.
func (c *Cache[K]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{HeldBytes: c.arena.MappedBytes(), MaxBytes: c.arena.BoundBytes(), Blocks: len(c.blocks), Wanted: c.wanted}
}

// Get pins and returns a filled block; nil if it is not in memory.
func (c *Cache[K]) Get(k K) *Block[K] {
	l := c.Lock()
	defer l.Unlock()
	return l.Get(k, 1)
}

// Release undoes one pin of Get.
func (c *Cache[K]) Release(b *Block[K]) {
	l := c.Lock()
	defer l.Unlock()
	l.Release(b)
}

// Fill returns a pinned block of that size for the caller to fill and to pass to Filled. It returns
// nil if another caller fills it or it is in memory, if it is not worth keeping, or if there is no
// room: it is larger than what pinned blocks leave of the cache, or the block to evict next is
// wanted sooner or shares its slab with a pinned one.
func (c *Cache[K]) Fill(k K, sizeBytes int64) *Block[K] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	b := c.blocks[k]
	if b == nil {
		if c.wanted > 0 {
			return nil
		}
		b = &Block[K]{key: k, at: -1}
	} else if b.slot != nil || len(b.next) == 0 && c.wanted > 0 {
		return nil
	}
	due := uint64(math.MaxUint64) // nothing is known about what is wanted: this one is used now
	if len(b.next) > 0 {
		due = b.next[0]
	}
	if b.slot = c.room(sizeBytes, due); b.slot == nil {
		return nil
	}
	b.slot.Of, b.users = b, 1
	c.pin(b)
	c.blocks[k] = b
	return b
}

// Filled ends a Fill. If right is set, Get returns the block from then on; if not, its memory is
// freed.
func (c *Cache[K]) Filled(b *Block[K], right bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.filled = right
	c.release(b)
}

// pin counts a block that now has users. It is called with mu held.
func (c *Cache[K]) pin(b *Block[K]) {
	c.pinned++
	c.pinnedBytes += int64(len(b.slot.Bytes))
}

// release undoes one pin. It is called with mu held.
func (c *Cache[K]) release(b *Block[K]) {
	if b.users--; b.users > 0 {
		return
	}
	c.pinnedBytes -= int64(len(b.slot.Bytes))
	if c.pinned--; c.pinned == 0 {
		c.unused.Broadcast()
	}
	if !b.filled {
		c.evict(b)
		return
	}
	c.uses++
	b.used = c.uses
	heap.Push(&c.idle, b)
	c.shrink()
}

// room returns a slot, if need be by evicting blocks that are wanted later than due, and none of
// them for a block that would not fit then. It is called with mu held.
func (c *Cache[K]) room(sizeBytes int64, due uint64) *uring.Slot {
	if sizeBytes > c.arena.BoundBytes()-c.pinnedBytes {
		return nil
	}
	for {
		if x, _ := c.arena.Take(sizeBytes, false); x != nil { // if the kernel has no memory, the cache uses what it has
			return x
		}
		if len(c.idle) == 0 || c.idle[0].rank() <= due && due != math.MaxUint64 {
			return nil
		}
		first := c.idle[0]
		if int64(len(first.slot.Bytes)) == sizeBytes {
			c.evict(first)
			continue
		}
		if !c.evictAround(first) {
			return nil
		}
	}
}

// evictAround evicts a block, and all others of its slab, so that this can be unmapped, even if they
// are wanted sooner. It returns false if one of them is pinned.
func (c *Cache[K]) evictAround(b *Block[K]) bool {
	slots := b.slot.Together()
	if slots == nil {
		c.evict(b)
		return true
	}
	for _, x := range slots {
		if x.Of != nil && x.Of.(*Block[K]).at < 0 {
			return false
		}
	}
	for _, x := range slots {
		if x.Of != nil {
			c.evict(x.Of.(*Block[K]))
		}
	}
	return true
}

// evict frees the memory of a block that is not pinned.
func (c *Cache[K]) evict(b *Block[K]) {
	if b.at >= 0 {
		heap.Remove(&c.idle, b.at)
	}
	_ = c.arena.Give(b.slot) // nothing to do about it: only memory is lost
	b.slot, b.filled = nil, false
	c.forget(b)
}

// forget removes a block that has no memory and is not wanted.
func (c *Cache[K]) forget(b *Block[K]) {
	if b.slot == nil && len(b.next) == 0 {
		delete(c.blocks, b.key)
	}
}

// Close waits until no block is pinned and frees all memory. Fill and Get return nil from then on.
// It is idempotent.
func (c *Cache[K]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.pinned > 0 {
		c.unused.Wait()
	}
	for len(c.idle) > 0 {
		c.evict(c.idle[len(c.idle)-1])
	}
	_ = c.arena.Close()
}

// Locked is a Cache whose lock the caller holds until Unlock: for several operations under one
// lock.
type Locked[K comparable] struct{ c *Cache[K] }

// Lock locks the cache.
func (c *Cache[K]) Lock() Locked[K] {
	c.mu.Lock()
	return Locked[K]{c}
}

// Unlock unlocks the cache. It must not be used through l any more.
func (l Locked[K]) Unlock() { l.c.mu.Unlock() }

// Has reports whether a block is filled.
func (l Locked[K]) Has(k K) bool {
	b := l.c.blocks[k]
	return b != nil && b.filled && !l.c.closed
}

// Get pins a filled block for a number of users, each of which calls Release, and returns it; nil
// if it is not in memory.
func (l Locked[K]) Get(k K, users int) *Block[K] {
	b := l.c.blocks[k]
	if b == nil || !b.filled || l.c.closed {
		return nil
	}
	if b.users == 0 {
		l.c.pin(b)
	}
	b.users += users
	if b.at >= 0 {
		heap.Remove(&l.c.idle, b.at)
	}
	return b
}

// Release undoes one pin.
func (l Locked[K]) Release(b *Block[K]) { l.c.release(b) }

// Want notes that a block is going to be wanted at a position, and returns it for Passed.
func (l Locked[K]) Want(k K, position uint64) *Block[K] {
	c := l.c
	b := c.blocks[k]
	if b == nil {
		b = &Block[K]{key: k, at: -1}
		c.blocks[k] = b
	}
	i, _ := slices.BinarySearch(b.next, position)
	b.next = slices.Insert(b.next, i, position)
	c.wanted++
	c.moved(b)
	return b
}

// Passed undoes one Want.
func (l Locked[K]) Passed(b *Block[K], position uint64) {
	c := l.c
	i, _ := slices.BinarySearch(b.next, position)
	b.next = slices.Delete(b.next, i, i+1)
	c.wanted--
	c.moved(b)
	if len(b.next) == 0 {
		b.next = nil
		c.forget(b)
	}
}

// moved restores the order of idle after the rank of a block has changed.
func (c *Cache[K]) moved(b *Block[K]) {
	if b.at >= 0 {
		heap.Fix(&c.idle, b.at)
	}
}

// rank orders idle blocks for eviction, the greatest first: blocks that are not wanted, the least
// recently used first, and then wanted blocks, the one wanted last first.
func (b *Block[K]) rank() uint64 {
	if len(b.next) == 0 {
		return math.MaxUint64 - b.used
	}
	return b.next[0]
}

// idle is a heap (container/heap) whose first element has the greatest rank.
type idle[K comparable] []*Block[K]

func (h idle[K]) Len() int           { return len(h) }
func (h idle[K]) Less(i, j int) bool { return h[i].rank() > h[j].rank() }
func (h idle[K]) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *idle[K]) Push(x any)        { x.(*Block[K]).at = len(*h); *h = append(*h, x.(*Block[K])) }
func (h *idle[K]) Pop() any {
	n := len(*h) - 1
	x := (*h)[n]
	(*h)[n] = nil
	*h, x.at = (*h)[:n], -1
	return x
}
