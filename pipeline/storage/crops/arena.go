package crops

import (
	"slices"

	"github.com/lsiofs/lsiofs/uring"
)

// arena holds decoded chunks: slabs of huge pages, each cut into slots of one size. Chunks are
// copied row by row, a few hundred bytes at a time from scattered addresses; with small pages the
// page lookups would cost as much as the copying. It is not safe for concurrent use.
type arena struct {
	maxBytes int64
	mapped   int64
	free     map[int64][]*slot // by the size of a chunk
}

// slot is the memory of one decoded chunk.
type slot struct {
	bytes []byte
	slab  *slab
	of    *cell // the cell that uses it; nil if it is free
}

// slab is the memory that is mapped at a time.
type slab struct {
	mem   []byte
	slots []*slot
}

func newArena(maxBytes int64) *arena {
	return &arena{maxBytes: maxBytes, free: map[int64][]*slot{}}
}

// slabBytes returns how much to map for chunks of a size: a huge page that holds several, or one
// chunk.
func slabBytes(chunkBytes int64) int64 {
	if chunkBytes > uring.HugePageBytes/2 {
		return (chunkBytes + 4095) &^ 4095
	}
	return uring.HugePageBytes
}

// take returns a slot, or nil if the bound has been reached.
func (a *arena) take(chunkBytes int64) *slot {
	if free := a.free[chunkBytes]; len(free) > 0 {
		x := free[len(free)-1]
		a.free[chunkBytes] = free[:len(free)-1]
		return x
	}
	size := slabBytes(chunkBytes)
	if a.mapped+size > a.maxBytes {
		if size = (chunkBytes + 4095) &^ 4095; a.mapped+size > a.maxBytes { // a small budget has no room for a huge page
			return nil
		}
	}
	mem, err := uring.Map(int(size))
	if err != nil {
		return nil // the chunk is decoded, but not cached
	}
	a.mapped += size
	s := &slab{mem: mem}
	for at := int64(0); at+chunkBytes <= size; at += chunkBytes {
		s.slots = append(s.slots, &slot{bytes: mem[at : at+chunkBytes : at+chunkBytes], slab: s})
	}
	a.free[chunkBytes] = append(a.free[chunkBytes], s.slots[1:]...)
	return s.slots[0]
}

// give returns a slot to the arena.
func (a *arena) give(x *slot) {
	x.of = nil
	n := int64(len(x.bytes))
	a.free[n] = append(a.free[n], x)
}

// unmap unmaps a slab whose slots are all free.
func (a *arena) unmap(s *slab) {
	n := int64(len(s.slots[0].bytes))
	a.free[n] = slices.DeleteFunc(a.free[n], func(x *slot) bool { return x.slab == s })
	a.mapped -= int64(len(s.mem))
	_ = uring.Unmap(s.mem) // nothing to do about it: only memory is lost
}

// close unmaps everything. No slot may be in use any more.
func (a *arena) close(slabs map[*slab]bool) {
	for _, free := range a.free {
		for _, x := range free {
			slabs[x.slab] = true
		}
	}
	for s := range slabs {
		a.mapped -= int64(len(s.mem))
		_ = uring.Unmap(s.mem)
	}
	clear(a.free)
}
