// Package blockcache keeps blocks of bytes in bounded memory outside of the Go heap, for callers that
// compute or decode blocks and then need them several times (storage/crops). It knows neither what a
// block holds nor where it comes from: a key is any comparable value.
//
// # Use
//
//	c := blockcache.New[key](maxBytes)
//	if b := c.Get(k); b != nil {               // pinned
//		…                                      // read b.Bytes()
//		c.Release(b)
//	} else if b := c.Fill(k, size); b != nil { // pinned, for this caller alone
//		…                                      // fill b.Bytes()
//		c.Filled(b, right)                     // unpinned; kept if right, otherwise freed
//	} else {
//		…                                      // not worth keeping, or no room: use other memory
//	}
//	c.Close()                                  // waits for pinned blocks
//
// A block is written by the caller of Fill only. Other callers get it once it is filled, so those
// that Get finds don't change. While a block is being filled, Get and Fill return nil for its key
// and nothing waits: a caller that has work to merge or to postpone does so itself, and one that
// does not fills memory of its own.
//
// Lock is for several operations under one lock: with it held, an operation costs a look-up in a
// map. Get and Fill of what is known allocate nothing.
//
// # What is kept
//
// A position is a point of time in the future: the lower, the sooner. If callers announce at which
// positions blocks will be wanted (Want, Passed), a block is kept as long as it is wanted, and
// among those, the ones wanted soonest stay: with blocks of one size, no other choice fills less
// (L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems
// Journal 5.2, 1966). Then Fill
// returns nil for a block that is not wanted: the caller fills memory of its own, which stays in the
// CPU cache. If nothing is announced, the most recently used blocks stay.
//
//	Want ──► next: positions ─┐
//	                          ├─► rank ──► idle: a heap of blocks that are filled and not pinned
//	Release ──► used: clock ──┘              │ the first to evict
//	                                         ▼
//	Fill ◄── slot ◄── Arena
//
// # Memory
//
// Blocks are slots of a uring.Arena. If another size needs the memory of a slab of slots, Cache evicts
// all blocks of the slab. A pinned block is never evicted, so neither is its slab. What is mapped
// stays within the bound, free slots included. Besides, a block costs about 200 bytes, also one that
// is wanted and not in memory: callers bound what they announce.
//
// # What does not use it
//
// Readers that scan and gather take slots of an Arena, and have caches of their own, because these
// are asked for each record. A scan finds a piece by its number in a table, without a lock, and pins
// the segment that has it once for all records of a call. Get costs a look-up in a map and the order
// of the heap: pinning pieces through a Cache made scanning records of 120 bytes a sixth slower. A
// segment is full of pieces of all sizes and is freed as a whole, its undelivered records moved
// together; which of them come soonest is not known beyond what is read ahead. What a gatherer has is
// in the order of its reader, which drops what it has passed: there is nothing to look up and nothing
// to choose.
package blockcache
