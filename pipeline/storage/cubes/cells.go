package cubes

import (
	"container/heap"
	"math"
	"slices"
	"sync"
)

// cells are decoded bricks that are kept, or decoded blocks of bricks, in bounded memory. What is said of
// bricks here counts for both.
//
// Where it is known what is going to be read (future), a brick is kept as long as somebody is going
// to want it, and of those the ones that are wanted soonest: no other choice decodes less (L. A.
// Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal
// 5.2, 1966). A brick that nobody is going to want is decoded where the worker has it in its
// cache, and is not kept. Where nothing is known, those stay that were used last.
type cells struct {
	mu    sync.Mutex
	arena *arena
	byKey map[key]*cell // that have bytes, or are wanted
	// idle have bytes that nobody uses now, what goes first at the top.
	idle   idleCells
	uses   uint64 // so far: when a cell was used last
	wanted int    // places in next of all cells
}

// cell is a brick that is kept, or that is going to be wanted.
type cell struct {
	key   key
	slot  *slot // nil where it has no bytes
	ready bool  // they have been decoded
	users int
	used  uint64
	next  []uint64 // when it is wanted: positions (future), sorted
	at    int      // in cells.idle; -1: it is not there
}

func newCells(maxBytes int64) *cells {
	return &cells{arena: newArena(maxBytes), byKey: map[key]*cell{}}
}

// allow bounds what is kept from now on.
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

// rank orders idle cells: those that nobody wants by when they were used last, before them those
// that are wanted, by when.
func (x *cell) rank() uint64 {
	if len(x.next) == 0 {
		return math.MaxUint64 - x.used
	}
	return x.next[0]
}

// idleCells is a heap of package container/heap, of which the first is the one of the greatest
// rank.
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

// get gives a brick that is kept, which the caller releases; nil where it is not.
func (c *cells) get(k key) *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pin(k, 1)
}

// pin is get for some users. c.mu is held.
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

// has says whether a cell is kept. c.mu is held.
func (c *cells) has(k key) bool {
	x := c.byKey[k]
	return x != nil && x.ready
}

// take gives a cell for a brick, to be decoded into and added, and then released. It is nil where
// the brick is not worth keeping, or there is no room: others use all that is kept, or the brick is
// larger than that.
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
		return nil // another worker decodes it; or nobody is going to want it
	}
	due := uint64(math.MaxUint64) // nothing is known of any: this one is used now
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

// room finds a slot, of cells that are wanted later than due.
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

// dropSlab drops all bricks of a slab, and gives it back. It is false where one is in use.
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

// drop frees the slot of a cell that nobody uses.
func (c *cells) drop(x *cell) {
	if x.at >= 0 {
		heap.Remove(&c.idle, x.at)
	}
	c.arena.give(x.slot)
	x.slot, x.ready = nil, false
	c.forget(x)
}

// forget removes a cell that is nothing any more.
func (c *cells) forget(x *cell) {
	if x.slot == nil && len(x.next) == 0 {
		delete(c.byKey, x.key)
	}
}

// add keeps a cell that was decoded. Its user releases it all the same.
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

// unpin is release. c.mu is held.
func (c *cells) unpin(x *cell) {
	if x.users--; x.users > 0 {
		return
	}
	if !x.ready { // it could not be decoded
		c.drop(x)
		return
	}
	c.uses++
	x.used = c.uses
	heap.Push(&c.idle, x)
}

// want notes that a brick is going to be wanted. c.mu is held.
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

// passed ends what want has noted. c.mu is held.
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

// moved puts a cell where its rank belongs, which has changed.
func (c *cells) moved(x *cell) {
	if x.at >= 0 {
		heap.Fix(&c.idle, x.at)
	}
}

// close gives all memory back. Nobody uses any of it.
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
