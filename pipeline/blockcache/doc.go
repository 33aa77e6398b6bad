// Package blockcache keeps blocks of bytes in bounded memory, for readers that compute or decode
// them and then need them several times. It knows neither what a block holds nor where it comes
// from: a key is any comparable value.
//
// # Use
//
//	c := blockcache.New[key](maxBytes)
//	b := c.Get(k)              // pinned; nil: it is not in memory
//	if b == nil {
//		b = c.Fill(k, size)    // pinned; nil: it is not worth keeping, or there is no room
//		…                      // fill b.Bytes(), or other memory if b is nil
//		c.Filled(b, right)     // kept if right, otherwise freed
//	}
//	c.Release(b)               // after Get
//	c.Close()                  // waits for pinned blocks
//
// A block is written by the caller of Fill only. Other callers get it once it is filled, so those
// that Get finds don't change. While a block is being filled, Get and Fill return nil for its key
// and nothing waits: a caller that has work to merge or to postpone does so itself, and one that
// does not fills memory of its own.
//
// Lock is for several operations under one lock. With it, an operation costs a look-up in a map.
// Get and Fill of what is known allocate nothing.
//
// # What is kept
//
// A position is a point of time in the future: the lower, the sooner. If callers announce at which
// positions blocks will be wanted (Want, Passed), a block is kept as long as it is wanted, and
// among those, the ones wanted soonest stay: no other choice fills less (L. A. Belady, A study of
// replacement algorithms for a virtual-storage computer, IBM Systems Journal 5.2, 1966). Then Fill
// returns nil for a block that is not wanted: the caller fills memory of its own, which stays in the
// CPU cache. If nothing is announced, the most recently used blocks stay.
//
//	Want ──► next: positions ─┐
//	                          ├─► rank ──► idle: a heap of blocks that are filled and not pinned
//	Release ──► used: clock ──┘              │ the first to evict
//	                                         ▼
//	Fill ◄── slot ◄── arena: slabs of huge pages, each cut into slots of one size
//
// A slab is unmapped when a block of another size needs its memory, which evicts all blocks of the
// slab. A pinned block is never evicted, so neither is its slab.
//
// # Memory
//
// What is mapped stays within the bound. It includes the memory of slots that are free. Besides, a
// block costs about 200 bytes, also one that is wanted and not in memory: callers bound what they
// announce.
package blockcache
