package diskcache

import (
	"sync"
	"time"
)

// place is where a page that arrives may be stored.
type place uint8

const (
	nowhere place = iota // it passes through, and is not written
	forGood              // it stays
	inShare              // it stays until it is passed
)

const (
	// leastStep is how much a cache may grow, at least, before its directory is counted again:
	// other processes may have added to it.
	leastStep = 16 << 20
	// One process takes at most 1/othersPart of what is left of the bound before it counts again,
	// so that several processes together don't exceed it.
	othersPart = 8
	// firstStep is how much is taken before the directory has been counted for the first time.
	firstStep = 32 << 20
	// statfsEvery is how often the file system is asked for its free space.
	statfsEvery = time.Second
)

// room decides what is cached. It counts blocks on the disk:
//
//	bound  ├──────────── permanent ─────────────┼─ share ─┤
//	used   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░▒▒▒
//	       └── counted ────────┘│   └ reserved, in transit
//	                            └ added since
//
// What is permanent is never given up for what arrives later.
type room struct {
	reserve  int64
	clock    Clock
	space    func() (space, error)
	punches  bool
	count    func()            // requests a count of the directory; doesn't wait
	countNow func() bool       // counts it, if that takes next to no time
	clean    func(least int64) // requests room for that many bytes; doesn't wait

	mu        sync.Mutex
	bound     int64
	share     int64
	aside     int64 // part of the bound for decoded shards that are not written yet
	known     bool  // counted is valid
	counted   int64 // by the last count
	base      int64 // value of added when it began
	added     int64 // by this process, in total
	dropped   int64 // since the end of the last count
	drops     int64 // by this process, in total
	unsure    bool  // the last count may have included what was dropped meanwhile
	reserved  int64
	shared    int64  // part of used that is in the share, by this process
	shareTurn uint64 // number of reservations in the share so far
	dropping  int    // drops whose pages may still be on the disk
	cleanable bool   // something may be removed to make room
	free      int64  // of the file system, minus what was reserved since
	freeUntil time.Time
}

func (r *room) used() int64 { return r.counted + r.grown() - r.dropped }

// take reserves n bytes and returns where they may be stored. With onlyGood it returns nowhere if
// they would have to be evicted later.
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
		r.count() // estimates are too high rather than too low
	}
	return p
}

// setAside sets n more bytes of the bound aside for decoded shards, or less if n is negative.
func (r *room) setAside(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aside += n
}

// hold reserves n bytes for a decoded shard, which may also use what is set aside. It reports
// whether they fit. It may count the directory first.
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

// forget subtracts n bytes that were permanent and have been removed.
func (r *room) forget(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped += n
	r.drops += n
	r.free += n
}

// grown returns what has arrived since the directory was counted. r.mu is held.
func (r *room) grown() int64 { return r.added - r.base + r.reserved }

// grows returns by how much the cache is larger than it was then: what passes through the share
// comes and goes. r.mu is held.
func (r *room) grows() int64 { return r.grown() - r.dropped }

// step returns by how much the cache may grow. r.mu is held.
func (r *room) step() int64 {
	if !r.known {
		return firstStep
	}
	return max(leastStep, (r.bound-r.counted)/othersPart)
}

// waits reports whether permanent room for n bytes is refused, whether there is room or not, until
// what is in transit has arrived and the directory is counted.
func (r *room) waits(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grows()+n > r.step()
}

// leaves reports whether the file system keeps its reserve. r.mu is held.
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

// lacks returns what DownToReserve returns for n bytes, as the file system is now.
func (r *room) lacks(n int64) string {
	s, err := r.space()
	if err != nil {
		return ""
	}
	return DownToReserve(s.free, r.reserve, n)
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

// drop subtracts bytes of the share that are being freed; the caller calls gone afterwards.
func (r *room) drop(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropping++
	r.dropped += n
	r.drops += n
	r.shared -= n
	r.free += n
}

// gone ends a drop: its pages are not on the disk any more.
func (r *room) gone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropping--
}

// unshared reports whether nothing of this process's share is on the disk or in transit. As long as
// turn is the same, that was also the case in between.
func (r *room) unshared() (turn uint64, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shareTurn, r.shared == 0 && r.dropping == 0
}

// counting begins a count. It returns what was added and dropped before.
func (r *room) counting() (base, drops int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.added, r.drops
}

// counts ends a count that has found that many bytes, and perhaps objects of other processes. It
// may or may not have seen what was written or dropped meanwhile: that counts as if it took room.
// Right after room was made there is nothing more to remove.
func (r *room) counts(base, drops, found int64, others, cleaned bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.counted, r.base, r.dropped, r.unsure = true, found, base, 0, r.drops > drops
	r.cleanable = !cleaned && (others || r.share > 0 && r.shared == 0 && found > r.bound-r.share)
}

// goodBytes returns the part of the bound for what is permanent.
func (r *room) goodBytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bound - r.share
}

// shares reports whether there is a share that can be used.
func (r *room) shares() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.share > 0 && r.punches
}

// roomBytes returns how much of the bound may be a share.
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

// busy reports whether data is in transit, for which room is reserved.
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
