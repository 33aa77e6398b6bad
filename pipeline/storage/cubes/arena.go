package cubes

import (
	"slices"

	"github.com/lsiofs/lsiofs/uring"
)

// arena is the memory of decoded bricks: slabs in huge pages, each cut into slots of one size.
// Bricks are copied row by row, some hundred bytes here and some there, which in small pages costs
// as much to find as to copy. It is not for concurrent use.
type arena struct {
	maxBytes int64
	mapped   int64
	free     map[int64][]*slot // by size of a brick
}

// slot is memory of one decoded brick.
type slot struct {
	bytes []byte
	slab  *slab
	of    *cell // whose it is; nil where it is free
}

// slab is what is mapped at a time.
type slab struct {
	mem   []byte
	slots []*slot
}

func newArena(maxBytes int64) *arena {
	return &arena{maxBytes: maxBytes, free: map[int64][]*slot{}}
}

// slabBytes is how much is mapped for bricks of a size: some of them in a huge page, or one.
func slabBytes(brickBytes int64) int64 {
	if brickBytes > uring.HugePageBytes/2 {
		return (brickBytes + 4095) &^ 4095
	}
	return uring.HugePageBytes
}

// take gives a slot; nil where the bound has been reached.
func (a *arena) take(brickBytes int64) *slot {
	if free := a.free[brickBytes]; len(free) > 0 {
		x := free[len(free)-1]
		a.free[brickBytes] = free[:len(free)-1]
		return x
	}
	size := slabBytes(brickBytes)
	if a.mapped+size > a.maxBytes {
		if size = (brickBytes + 4095) &^ 4095; a.mapped+size > a.maxBytes { // little memory has no huge page
			return nil
		}
	}
	mem, err := uring.Map(int(size))
	if err != nil {
		return nil // it is decoded, and not kept
	}
	a.mapped += size
	s := &slab{mem: mem}
	for at := int64(0); at+brickBytes <= size; at += brickBytes {
		s.slots = append(s.slots, &slot{bytes: mem[at : at+brickBytes : at+brickBytes], slab: s})
	}
	a.free[brickBytes] = append(a.free[brickBytes], s.slots[1:]...)
	return s.slots[0]
}

// give takes a slot back.
func (a *arena) give(x *slot) {
	x.of = nil
	n := int64(len(x.bytes))
	a.free[n] = append(a.free[n], x)
}

// unmap gives a slab back of which all slots are free.
func (a *arena) unmap(s *slab) {
	n := int64(len(s.slots[0].bytes))
	a.free[n] = slices.DeleteFunc(a.free[n], func(x *slot) bool { return x.slab == s })
	a.mapped -= int64(len(s.mem))
	_ = uring.Unmap(s.mem) // nothing can be done, and nothing is lost but memory
}

// close gives all back. Nothing is used any more.
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
