package diskcache

import (
	"sync"
	"time"
)

// place is where a page that comes may be kept.
type place uint8

const (
	nowhere place = iota // it passes through, and is not written
	forGood              // it stays
	inShare              // it stays until Done
)

const (
	// leastStep is by how much a cache may grow, at least, before its directory is
	// counted again: others may have made it grow as well.
	leastStep = 16 << 20
	// othersPart: of what is left of the bound, one process takes so much, at most, before
	// it counts again. So several at a time don't go over it.
	othersPart = 8
	// firstStep is how much is taken before the directory has been counted at all.
	firstStep = 32 << 20
	// statfsEvery is how often the file system is asked what it has left.
	statfsEvery = time.Second
)

// room decides what is kept. It counts blocks on the disk:
//
//	bound  ├───────────── for good ─────────────┼─ share ─┤
//	used   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░▒▒▒
//	       └── counted ────────┘│   └ reserved: it is on its way
//	                            └ added since
//
// What is kept for good is never given up for what comes later.
type room struct {
	reserve  int64
	clock    Clock
	space    func() (space, error)
	punches  bool
	count    func()            // has the directory counted, soon; it doesn't wait
	countNow func() bool       // counts it, where that takes next to no time
	clean    func(least int64) // has room made for so many bytes, soon; it doesn't wait

	mu        sync.Mutex
	bound     int64
	share     int64
	aside     int64 // of the bound, for decoded shards that have not come yet
	known     bool  // counted means something
	counted   int64 // of the last count
	base      int64 // added, when it began
	added     int64 // by this process, in all
	dropped   int64 // since the end of the last count
	drops     int64 // by this process, in all
	unsure    bool  // the last count may have found what was dropped meanwhile
	reserved  int64
	shared    int64  // of used, in the share, by this process
	shareTurn uint64 // reservations of the share, so far
	dropping  int    // drops whose pages may still be on the disk
	cleanable bool   // something may be removed to make room
	free      int64  // of the file system, less what was reserved since
	freeUntil time.Time
}

func (r *room) used() int64 { return r.counted + r.grown() - r.dropped }

// take reserves n bytes, and says where they may be kept; nowhere, where it is not for
// good and onlyGood says that it has to be.
func (r *room) take(n int64, onlyGood bool) place {
	r.mu.Lock()
	defer r.mu.Unlock()
	for again := false; r.grows()+n > r.step()/2; again = true {
		if r.grows()+n <= r.step() {
			r.count()
			break
		}
		r.mu.Unlock()
		now := !again && r.countNow()
		r.mu.Lock()
		if !now {
			r.count()
			return nowhere
		}
	}
	if r.used()-r.shared+n > r.bound-r.share-r.aside && r.cleanable {
		r.cleanable = false
		r.clean(n + r.aside)
	}
	if !r.leaves(n) {
		return nowhere
	}
	p := nowhere
	switch used := r.used(); {
	case used+n > r.bound:
	case used-r.shared+n <= r.bound-r.share-r.aside:
		p = forGood
	case !onlyGood && r.punches && r.shared+n <= r.share:
		p = inShare
		r.shared += n
		r.shareTurn++
	}
	if p != nowhere {
		r.reserved += n
		r.free -= n
	}
	if p != forGood && (r.added > r.base || r.unsure) {
		r.count() // estimates are too high, if anything
	}
	return p
}

// setAside sets n bytes of the bound more aside for decoded shards, or less.
func (r *room) setAside(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aside += n
}

// hold reserves n bytes for a decoded shard, which has what is set aside, too. It reports
// whether they fit. It may look at the directory first.
func (r *room) hold(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.grows()+n > r.step()/2 {
		r.mu.Unlock()
		if !r.countNow() {
			r.count()
		}
		r.mu.Lock()
	}
	if r.used()-r.shared+n > r.bound-r.share || !r.leaves(n) {
		return false
	}
	r.reserved += n
	r.free -= n
	return true
}

// forget counts n bytes that were kept for good, and were removed.
func (r *room) forget(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped += n
	r.drops += n
	r.free += n
}

// grown is what has come since the directory was counted. r.mu is held.
func (r *room) grown() int64 { return r.added - r.base + r.reserved }

// grows is by how much the cache is larger than it was then: what passes through the share
// comes and goes. r.mu is held.
func (r *room) grows() int64 { return r.grown() - r.dropped }

// step is by how much it may. r.mu is held.
func (r *room) step() int64 {
	if !r.known {
		return firstStep
	}
	return max(leastStep, (r.bound-r.counted)/othersPart)
}

// waits says whether n bytes are refused, for good, until what is on its way has come and
// the directory is counted, be there room or not.
func (r *room) waits(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grows()+n > r.step()
}

// leaves says whether the file system keeps its reserve. r.mu is held.
func (r *room) leaves(n int64) bool {
	if now := r.clock.Now(); !now.Before(r.freeUntil) {
		s, err := r.space()
		if err != nil {
			return false
		}
		r.free, r.freeUntil = s.free-r.reserved, now.Add(statfsEvery)
	}
	return r.free-n >= r.reserve
}

// put ends a reservation of n bytes, of which kept were written.
func (r *room) put(p place, n, kept int64) {
	if p == nowhere {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved -= n
	r.added += kept
	r.free += n - kept
	if p == inShare {
		r.shared -= n - kept
	}
}

// grow counts bytes that were written without a reservation.
func (r *room) grow(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added += n
}

// drop counts bytes of the share that are freed now; gone has to follow.
func (r *room) drop(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropping++
	r.dropped += n
	r.drops += n
	r.shared -= n
	r.free += n
}

// gone says that the pages of a drop are not on the disk any more.
func (r *room) gone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropping--
}

// unshared says whether nothing of this process's share is on the disk, nor on its way. As
// long as turn is the same it was so in between, too.
func (r *room) unshared() (turn uint64, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shareTurn, r.shared == 0 && r.dropping == 0
}

// counting begins a count. It gives what was added and dropped before.
func (r *room) counting() (base, drops int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.added, r.drops
}

// counts ends one: it has found so many bytes, and perhaps objects of others. What was
// written or dropped meanwhile may have been found or not: it counts as if it took room.
// Right after room was made there is nothing more to remove.
func (r *room) counts(base, drops, found int64, others, cleaned bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.counted, r.base, r.dropped, r.unsure = true, found, base, 0, r.drops > drops
	r.cleanable = !cleaned && (others || r.share > 0 && r.shared == 0 && found > r.bound-r.share)
}

// goodBytes is the part of the bound for what is kept for good.
func (r *room) goodBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bound - r.share
}

// shares says whether there is a share that can be used.
func (r *room) shares() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.share > 0 && r.punches
}

// roomBytes is how much of the bound may be a share.
func (r *room) roomBytes() int64 {
	if !r.punches {
		return 0
	}
	return r.boundBytes()
}

func (r *room) boundBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bound
}

func (r *room) setBound(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bound = max(0, n)
	r.share = min(r.share, r.bound)
}

// busy says that something is on its way, for which room is reserved.
func (r *room) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reserved > 0
}

func (r *room) setShare(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.share = max(0, min(n, r.bound))
}

func (r *room) usage() (used, shared int64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used() - r.reserved, r.shared, r.known
}
