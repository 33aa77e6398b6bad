package blockcache

import (
	"slices"

	"github.com/lsiofs/lsiofs/uring"
)

// arena is the memory of a cache: slabs of huge pages, each cut into slots of one size. Callers
// copy a few hundred bytes at a time from scattered addresses; with small pages the page lookups
// would cost as much as the copying. It is not safe for concurrent use.
type arena[K comparable] struct {
	maxBytes int64
	mapped   int64
	free     map[int64][]*slot[K] // by size
	empty    int                  // slabs whose slots are all free
}

// slot is the memory of one block.
type slot[K comparable] struct {
	bytes []byte
	slab  *slab[K]
	of    *Block[K] // the block that uses it; nil if it is free
}

// slab is the memory that is mapped at a time.
type slab[K comparable] struct {
	mem   []byte
	slots []*slot[K]
	used  int // slots that are not free
}

const pageBytes = 4096

// slabBytes returns how much to map for blocks of a size: a huge page that holds several, or one
// block.
func slabBytes(sizeBytes int64) int64 {
	if sizeBytes > uring.HugePageBytes/2 {
		return roundToPages(sizeBytes)
	}
	return uring.HugePageBytes
}

func roundToPages(n int64) int64 { return (n + pageBytes - 1) &^ (pageBytes - 1) }

// take returns a slot, or nil if the bound has been reached.
func (a *arena[K]) take(sizeBytes int64) *slot[K] {
	if free := a.free[sizeBytes]; len(free) > 0 {
		x := free[len(free)-1]
		a.free[sizeBytes] = free[:len(free)-1]
		a.use(x.slab)
		return x
	}
	n := slabBytes(sizeBytes)
	for a.mapped+n > a.maxBytes && a.unmapEmpty() {
	}
	if a.mapped+n > a.maxBytes {
		if n = roundToPages(sizeBytes); a.mapped+n > a.maxBytes { // a small bound has no room for a huge page
			return nil
		}
	}
	mem, err := uring.Map(int(n))
	if err != nil {
		return nil // the caller goes on without the cache
	}
	a.mapped += n
	s := &slab[K]{mem: mem, used: 1}
	for at := int64(0); at+sizeBytes <= n; at += sizeBytes {
		s.slots = append(s.slots, &slot[K]{bytes: mem[at : at+sizeBytes : at+sizeBytes], slab: s})
	}
	a.free[sizeBytes] = append(a.free[sizeBytes], s.slots[1:]...)
	return s.slots[0]
}

// use counts a slot that is not free any more.
func (a *arena[K]) use(s *slab[K]) {
	if s.used == 0 {
		a.empty--
	}
	s.used++
}

// give returns a slot to the arena.
func (a *arena[K]) give(x *slot[K]) {
	x.of = nil
	n := int64(len(x.bytes))
	a.free[n] = append(a.free[n], x)
	if x.slab.used--; x.slab.used == 0 {
		a.empty++
	}
}

// unmapEmpty unmaps a slab whose slots are all free. It returns false if there is none.
func (a *arena[K]) unmapEmpty() bool {
	if a.empty == 0 {
		return false
	}
	for _, free := range a.free {
		if i := slices.IndexFunc(free, func(x *slot[K]) bool { return x.slab.used == 0 }); i >= 0 {
			a.unmap(free[i].slab)
			return true
		}
	}
	return false
}

// unmap unmaps a slab whose slots are all free.
func (a *arena[K]) unmap(s *slab[K]) {
	n := int64(len(s.slots[0].bytes))
	a.free[n] = slices.DeleteFunc(a.free[n], func(x *slot[K]) bool { return x.slab == s })
	a.empty--
	a.mapped -= int64(len(s.mem))
	_ = uring.Unmap(s.mem) // nothing to do about it: only memory is lost
}

// close unmaps everything. All slots must be free.
func (a *arena[K]) close() {
	slabs := map[*slab[K]]bool{}
	for _, free := range a.free {
		for _, x := range free {
			slabs[x.slab] = true
		}
	}
	for s := range slabs {
		_ = uring.Unmap(s.mem)
	}
	clear(a.free)
	a.mapped, a.empty = 0, 0
}
