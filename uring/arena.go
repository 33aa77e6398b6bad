package uring

import "slices"

// Arena lends memory that Map has returned, in slots of any size:
//
//	up to half a huge page   cut from a slab of huge pages, with others of its size
//	larger, or no slabs      mapped by itself
//
// Slabs are of huge pages because copying a few hundred bytes at a time from scattered addresses would
// otherwise spend as much on page lookups. A slot that is given back is reused for the same size,
// because the kernel has to clear new pages. If another size needs the memory, free slots that are
// mapped by themselves are unmapped, the oldest first, and then slabs whose slots are all free.
//
// It is not safe for concurrent use.
type Arena struct {
	config ArenaConfig

	mapped     int64
	aloneBytes int64             // of alone
	emptyBytes int64             // of slabs whose slots are all free
	alone      []*Slot           // free, each mapped by itself; oldest first
	cut        map[int64][]*Slot // free, of slabs, by size
	slabs      []*slab           // oldest first
}

// ArenaConfig configures an Arena.
type ArenaConfig struct {
	// BoundBytes is how much may be mapped, free slots included.
	BoundBytes int64
	// SlabsFrom is the least bound with which there are slabs of huge pages. 0: there are none.
	SlabsFrom int64
	// LooseFrom is the number of bytes from which on a slot that is an eighth longer than needed may
	// be reused. Otherwise sizes have to be equal. 0: they always have.
	LooseFrom int64
}

// looseShare is the fraction of a slot that may be wasted: 1/looseShare.
const looseShare = 8

// Slot is memory of an Arena.
type Slot struct {
	// Bytes is as long as what was asked for, or a little longer (ArenaConfig.LooseFrom).
	Bytes []byte

	// Of is for the user of the slot: what it is used for. Give sets it to nil.
	Of any

	slab *slab // nil: mapped by itself
}

// slab is pages that are cut into slots of one size.
type slab struct {
	mem   []byte
	slots []*Slot
	used  int // slots that are not free
}

// NewArena returns an arena that has mapped nothing.
func NewArena(c ArenaConfig) *Arena { return &Arena{config: c, cut: map[int64][]*Slot{}} }

// MappedBytes returns how much is mapped.
func (a *Arena) MappedBytes() int64 { return a.mapped }

// FreeBytes returns how much of it is unmapped as soon as the bound requires it.
func (a *Arena) FreeBytes() int64 { return a.aloneBytes + a.emptyBytes }

// BoundBytes returns how much may be mapped.
func (a *Arena) BoundBytes() int64 { return a.config.BoundBytes }

// Bound sets how much may be mapped from now on. Trim unmaps what is free.
func (a *Arena) Bound(bytes int64) { a.config.BoundBytes = bytes }

// Take returns a slot of at least n bytes. If there is no room for it, Take returns nil, or exceeds
// the bound if beyond is set. An error is the kernel's.
func (a *Arena) Take(n int64, beyond bool) (*Slot, error) {
	if free := a.cut[n]; len(free) > 0 {
		s := free[len(free)-1]
		a.cut[n] = free[:len(free)-1]
		if s.slab.used++; s.slab.used == 1 {
			a.emptyBytes -= int64(len(s.slab.mem))
		}
		return s, nil
	}
	if i := a.find(n); i >= 0 {
		s := a.alone[i]
		a.alone = slices.Delete(a.alone, i, i+1)
		a.aloneBytes -= s.bytes()
		return s, nil
	}
	size := roundToPages(n)
	if err := a.unmapTo(a.config.BoundBytes - size); err != nil {
		return nil, err
	}
	bound := a.config.BoundBytes
	huge := a.config.SlabsFrom > 0 && bound >= a.config.SlabsFrom
	switch {
	case huge && n <= HugePageBytes/2 && a.mapped+HugePageBytes <= bound:
		return a.cutSlab(n, HugePageBytes)
	case a.mapped+size > bound && !beyond:
		return nil, nil
	case 2*n <= size:
		return a.cutSlab(n, size)
	}
	mem, err := Map(int(size))
	if err != nil {
		return nil, err
	}
	a.mapped += size
	return &Slot{Bytes: mem[:n:size]}, nil
}

// Together returns the slots of s's slab, s and free ones included: this memory is unmapped once all
// of them are free. It returns nil if s is mapped by itself.
func (s *Slot) Together() []*Slot {
	if s.slab == nil {
		return nil
	}
	return s.slab.slots
}

func roundToPages(n int64) int64 { return (n + pageBytes - 1) &^ (pageBytes - 1) }

// bytes returns how much is mapped for a slot that is mapped by itself.
func (s *Slot) bytes() int64 { return int64(cap(s.Bytes)) }

// find returns the index in alone of the smallest slot that n bytes may reuse, the newest of these,
// or -1.
func (a *Arena) find(n int64) int {
	most, best := n, -1
	if from := a.config.LooseFrom; from > 0 && n >= from {
		most += n / looseShare
	}
	for i, s := range slices.Backward(a.alone) {
		size := int64(len(s.Bytes))
		if size == n {
			return i
		}
		if size > n && size <= most && (best < 0 || size < int64(len(a.alone[best].Bytes))) {
			best = i
		}
	}
	return best
}

// Reuses returns how long a free slot is that Take would return for n bytes and that is mapped by
// itself; 0 if there is none.
func (a *Arena) Reuses(n int64) int64 {
	if i := a.find(n); i >= 0 {
		return a.alone[i].bytes()
	}
	return 0
}

// cutSlab maps a slab of that many bytes for slots of n bytes, and returns one.
func (a *Arena) cutSlab(n, bytes int64) (*Slot, error) {
	mem, err := Map(int(bytes))
	if err != nil {
		return nil, err
	}
	a.mapped += bytes
	s := &slab{mem: mem, used: 1}
	for at := int64(0); at+n <= bytes; at += n {
		s.slots = append(s.slots, &Slot{Bytes: mem[at : at+n : at+n], slab: s})
	}
	a.slabs = append(a.slabs, s)
	a.cut[n] = append(a.cut[n], s.slots[1:]...)
	return s.slots[0], nil
}

// Give takes a slot back. What is free beyond the bound is unmapped.
func (a *Arena) Give(s *Slot) error {
	s.Of = nil
	if s.slab == nil {
		a.alone = append(a.alone, s)
		a.aloneBytes += s.bytes()
	} else {
		n := int64(len(s.Bytes))
		a.cut[n] = append(a.cut[n], s)
		if s.slab.used--; s.slab.used == 0 {
			a.emptyBytes += int64(len(s.slab.mem))
		}
	}
	return a.unmapTo(a.config.BoundBytes)
}

// Trim unmaps free memory, the oldest first, until at least that many bytes are unmapped or none is
// free.
func (a *Arena) Trim(bytes int64) error { return a.unmapTo(a.mapped - max(bytes, 0)) }

// unmapTo unmaps free memory as long as more than most bytes are mapped.
func (a *Arena) unmapTo(most int64) (err error) {
	for a.mapped > most && a.FreeBytes() > 0 {
		e := a.unmapOldest()
		if err == nil {
			err = e
		}
	}
	return err
}

// unmapOldest unmaps a slot or, if there is none that is mapped by itself, a slab.
func (a *Arena) unmapOldest() error {
	if len(a.alone) > 0 {
		s := a.alone[0]
		a.alone = slices.Delete(a.alone, 0, 1)
		a.aloneBytes -= s.bytes()
		a.mapped -= s.bytes()
		return Unmap(s.Bytes[:cap(s.Bytes)])
	}
	i := slices.IndexFunc(a.slabs, func(s *slab) bool { return s.used == 0 })
	s := a.slabs[i]
	a.slabs = slices.Delete(a.slabs, i, i+1)
	n := int64(len(s.slots[0].Bytes))
	a.cut[n] = slices.DeleteFunc(a.cut[n], func(x *Slot) bool { return x.slab == s })
	a.emptyBytes -= int64(len(s.mem))
	a.mapped -= int64(len(s.mem))
	return Unmap(s.mem)
}

// HasRoom reports whether Take would return a slot of n bytes within the bound.
func (a *Arena) HasRoom(n int64) bool {
	if len(a.cut[n]) > 0 || a.find(n) >= 0 {
		return true
	}
	return a.mapped-a.FreeBytes()+roundToPages(n) <= a.config.BoundBytes
}

// Close unmaps everything that is free. What is in use stays mapped: a leak is better than bytes
// that change.
func (a *Arena) Close() (err error) {
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	for _, s := range a.alone {
		a.mapped -= s.bytes()
		keep(Unmap(s.Bytes[:cap(s.Bytes)]))
	}
	for _, s := range a.slabs {
		if s.used == 0 {
			a.mapped -= int64(len(s.mem))
			keep(Unmap(s.mem))
		}
	}
	a.alone, a.aloneBytes, a.slabs, a.emptyBytes = nil, 0, nil, 0
	clear(a.cut)
	return err
}
