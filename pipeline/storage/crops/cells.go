package crops

import (
	"container/heap"
	"math"
	"slices"
	"sync"
)

// cells is a cache of decoded chunks, or of decoded blocks of chunks, in bounded memory. What is
// written about chunks here applies to both.
//
// When the coming reads are known (future), a chunk is cached as long as a reader is going to want
// it, and among those, the ones wanted soonest stay: no other choice decodes less (L. A. Belady, A
// study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5.2, 1966). A
// chunk that no reader is going to want is decoded into the worker's own buffer, which stays in the
// CPU cache, and is not kept. When nothing is known, the most recently used chunks stay.
type cells struct {
	mu    sync.Mutex
	arena *arena
	byKey map[key]*cell // cells that have bytes or are wanted
	// idle cells have bytes that are not in use. The first to evict is at the top.
	idle   idleCells
	uses   uint64 // number of uses so far, the clock of cell.used
	wanted int    // total length of next of all cells
}

// cell is a chunk that is cached or is going to be wanted.
type cell struct {
	key   key
	slot  *slot // nil if it has no bytes
	ready bool  // the bytes have been decoded
	users int
	used  uint64
	next  []uint64 // positions (future) at which it is wanted, sorted
	at    int      // index in cells.idle, or -1
}

func newCells(maxBytes int64) *cells {
	return &cells{arena: newArena(maxBytes), byKey: map[key]*cell{}}
}

// allow sets the bound of the cache from now on.
func (c *cells) allow(maxBytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arena.maxBytes = maxBytes
	for c.arena.mapped > maxBytes && len(c.idle) > 0 && c.dropSlab(c.idle[0].slot.slab) {
	}
}

func (c *cells) mostBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.arena.maxBytes
}

func (c *cells) heldBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.arena.mapped
}

// rank orders idle cells for eviction, the greatest first: cells that no reader wants, the least
// recently used first, and then wanted cells, the one wanted last first.
func (x *cell) rank() uint64 {
	if len(x.next) == 0 {
		return math.MaxUint64 - x.used
	}
	return x.next[0]
}

// idleCells is a heap (container/heap) whose first element has the greatest rank.
type idleCells []*cell

func (h idleCells) Len() int           { return len(h) }
func (h idleCells) Less(i, j int) bool { return h[i].rank() > h[j].rank() }
func (h idleCells) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *idleCells) Push(x any)        { x.(*cell).at = len(*h); *h = append(*h, x.(*cell)) }
func (h *idleCells) Pop() any {
	n := len(*h) - 1
	x := (*h)[n]
	(*h)[n] = nil
	*h, x.at = (*h)[:n], -1
	return x
}

// get returns a cached chunk, which the caller releases, or nil if it is not cached.
func (c *cells) get(k key) *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pin(k, 1)
}

// pin is get for a number of users. The caller holds c.mu.
func (c *cells) pin(k key, users int) *cell {
	x := c.byKey[k]
	if x == nil || !x.ready {
		return nil
	}
	x.users += users
	if x.at >= 0 {
		heap.Remove(&c.idle, x.at)
	}
	return x
}

// has reports whether a cell is cached. The caller holds c.mu.
func (c *cells) has(k key) bool {
	x := c.byKey[k]
	return x != nil && x.ready
}

// take returns a cell for the caller to decode a chunk into, add and then release. It returns nil
// if the chunk is not worth caching or there is no room: all other cells are in use, or the chunk
// is larger than the cache.
func (c *cells) take(k key, sizeBytes int64) *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.byKey[k]
	if x == nil {
		if c.wanted > 0 {
			return nil
		}
		x = &cell{key: k, at: -1}
	} else if x.slot != nil || len(x.next) == 0 && c.wanted > 0 {
		return nil // another worker decodes it, or no reader is going to want it
	}
	due := uint64(math.MaxUint64) // nothing is known about coming reads: this one is used now
	if len(x.next) > 0 {
		due = x.next[0]
	}
	if x.slot = c.room(sizeBytes, due); x.slot == nil {
		return nil
	}
	x.slot.of, x.users = x, 1
	c.byKey[k] = x
	return x
}

// room returns a slot, if need be by evicting cells that are wanted later than due.
func (c *cells) room(sizeBytes int64, due uint64) *slot {
	for {
		if x := c.arena.take(sizeBytes); x != nil {
			return x
		}
		if len(c.idle) == 0 || c.idle[0].rank() <= due && due != math.MaxUint64 {
			return nil
		}
		oldest := c.idle[0]
		if int64(len(oldest.slot.bytes)) == sizeBytes {
			c.drop(oldest)
			continue
		}
		if !c.dropSlab(oldest.slot.slab) {
			return nil
		}
	}
}

// dropSlab drops all chunks of a slab and unmaps it. It returns false if one of them is in use.
func (c *cells) dropSlab(s *slab) bool {
	for _, x := range s.slots {
		if x.of != nil && x.of.at < 0 {
			return false
		}
	}
	for _, x := range s.slots {
		if x.of != nil {
			c.drop(x.of)
		}
	}
	c.arena.unmap(s)
	return true
}

// drop frees the slot of a cell that is not in use.
func (c *cells) drop(x *cell) {
	if x.at >= 0 {
		heap.Remove(&c.idle, x.at)
	}
	c.arena.give(x.slot)
	x.slot, x.ready = nil, false
	c.forget(x)
}

// forget removes a cell that has neither bytes nor readers that want it.
func (c *cells) forget(x *cell) {
	if x.slot == nil && len(x.next) == 0 {
		delete(c.byKey, x.key)
	}
}

// add marks a cell as decoded. Its user still has to release it.
func (c *cells) add(x *cell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.ready = true
}

// release ends a use.
func (c *cells) release(x *cell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unpin(x)
}

// unpin is release. The caller holds c.mu.
func (c *cells) unpin(x *cell) {
	if x.users--; x.users > 0 {
		return
	}
	if !x.ready { // decoding failed
		c.drop(x)
		return
	}
	c.uses++
	x.used = c.uses
	heap.Push(&c.idle, x)
}

// want notes that a chunk is going to be wanted. The caller holds c.mu.
func (c *cells) want(k key, position uint64) *cell {
	x := c.byKey[k]
	if x == nil {
		x = &cell{key: k, at: -1}
		c.byKey[k] = x
	}
	i, _ := slices.BinarySearch(x.next, position)
	x.next = slices.Insert(x.next, i, position)
	c.wanted++
	c.moved(x)
	return x
}

// passed undoes one want. The caller holds c.mu.
func (c *cells) passed(x *cell, position uint64) {
	i, _ := slices.BinarySearch(x.next, position)
	x.next = slices.Delete(x.next, i, i+1)
	c.wanted--
	c.moved(x)
	if len(x.next) == 0 {
		x.next = nil
		c.forget(x)
	}
}

// moved restores the order of the heap after the rank of a cell has changed.
func (c *cells) moved(x *cell) {
	if x.at >= 0 {
		heap.Fix(&c.idle, x.at)
	}
}

// close frees all memory. No cell may be in use.
func (c *cells) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	slabs := map[*slab]bool{}
	for _, x := range c.idle {
		slabs[x.slot.slab] = true
	}
	c.arena.close(slabs)
	clear(c.byKey)
	c.idle = nil
}
