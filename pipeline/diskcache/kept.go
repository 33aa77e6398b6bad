package diskcache

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// DecodedMark begins the part of a Validator that identifies how an object was decoded: see
// DecodedIdentity.
const DecodedMark = " decoded:"

// DecodedIdentity returns the identity of the decoded bytes of an object of rawBytes. They are
// determined by the object's own bytes and by how, which identifies the codec and everything else
// about the decoder that changes a byte.
func DecodedIdentity(raw Identity, rawBytes int64, how string) Identity {
	return Identity{URL: raw.URL, Validator: fmt.Sprintf("%s of %d bytes%s%s", raw.Validator, rawBytes, DecodedMark, how)}
}

// ErrNotKept is the error of a decoded shard for which the cache has no place now: its bound is
// reached, its disk is full, or the mount does not use the cache any more.
var ErrNotKept = errors.New("the cache has no place for the decoded shard now")

// ShelfConfig describes the decoded shards of a shelf in a cache.
type ShelfConfig struct {
	Shards    []int // that may be taken
	NeedBytes int64 // decoded bytes that an order reads at a time
	AllBytes  int64 // of all decoded shards
	// RawBytes is how much of the bound is left to objects that are not decoded, if it holds both.
	RawBytes int64
	// MostTableBytes is as in NewSpool.
	MostTableBytes int64
	// Identify returns the identity of a decoded shard (DecodedIdentity), if it has one.
	Identify func(shard int) (Identity, bool)
	// DecodedBytes returns the size of a decoded shard.
	DecodedBytes func(shard int) int64
}

// NewShelf returns a shelf in the cache's directory, where decoded shards are objects of the cache:
// they outlive the mount and are shared with others. It sets aside room for NeedBytes. It fails if
// the bound is less than that, or if a shard has no identity.
func (s *Storage) NewShelf(c ShelfConfig) (*Shelf, error) {
	bound := s.room.goodBytes()
	most := c.mostBytes(bound)
	if most == 0 {
		return nil, fmt.Errorf("--cache-size (%d bytes) is less than the %d bytes of decoded shards that the order needs at a time", bound, c.roomFor(c.NeedBytes))
	}
	for _, shard := range c.Shards {
		id, ok := c.Identify(shard)
		if !ok {
			return nil, errors.New("the cache can't tell the versions of its objects apart")
		}
		s.mu.Lock()
		s.mine[keyOf(id, c.DecodedBytes(shard))] = struct{}{}
		s.mu.Unlock()
	}
	a := &keptArena{s: s, most: most, mostFiles: mostKept(s.config.MaxFiles)}
	a.all = c.holdsAll(bound, a.mostFiles)
	a.removed.L = &a.mu
	a.setAside(a.most)
	shelf := newShelf(a, c.MostTableBytes, s.config.Engine)
	shelf.identify = c.Identify
	return shelf, nil
}

// roomFor returns the room that decoded shards of that many bytes take.
func (c *ShelfConfig) roomFor(bytes int64) int64 {
	return bytes + bytes/(pageBytes/sumBytes) + int64(len(c.Shards))*(headerBytes+2*pageBytes)
}

// mostBytes returns the room of a shelf in a cache with that bound, 0 if that is too little.
func (c *ShelfConfig) mostBytes(bound int64) int64 {
	if need := c.roomFor(c.NeedBytes); bound >= need {
		return max(need, min(c.roomFor(c.AllBytes), bound-c.RawBytes))
	}
	return 0
}

// mostKept returns how many shards a shelf has open at a time, if its cache has that many objects
// open.
func mostKept(maxFiles int) int { return max(1, maxFiles/2) }

// holdsAll reports whether a shelf in a cache with that bound, which has at most mostFiles shards
// open, has room for all of them at the same time.
func (c *ShelfConfig) holdsAll(bound int64, mostFiles int) bool {
	return len(c.Shards) <= mostFiles && c.roomFor(c.AllBytes) <= c.mostBytes(bound)
}

// KeepsAll reports whether a shelf in a cache with that bound, and otherwise DefaultConfig's
// settings, would keep all of the decoded shards: it has room for all of them, and can tell their
// versions apart. Then OpenPlain presents them.
func (c *ShelfConfig) KeepsAll(bound int64) bool {
	return c.holdsAll(bound, mostKept(DefaultConfig().MaxFiles)) && !slices.ContainsFunc(c.Shards, func(shard int) bool {
		_, ok := c.Identify(shard)
		return !ok
	})
}

// keptArena is an arena in a cache's directory.
//
// most bounds what the shelf's shards take together. Whether the disk really has room for a shard
// turns out when it is opened, from the room of the whole cache.
type keptArena struct {
	s         *Storage
	most      int64
	mostFiles int  // shards at a time: each takes two descriptors
	all       bool // it has room for all shards, so that none is removed for another

	mu       sync.Mutex
	taken    int64
	shards   int
	crowded  bool  // the last shard was refused because of mostFiles
	aside    int64 // this arena's part of room.aside
	removing int
	removed  sync.Cond // signals that removing is 0
}

// setAside sets up to n more bytes aside.
func (a *keptArena) setAside(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n = max(n, -a.aside)
	a.aside += n
	a.s.room.setAside(n)
}

func (a *keptArena) dir() string  { return a.s.dir.path }
func (a *keptArena) name() string { return "the cache in " + a.s.dir.path }
func (a *keptArena) keeps() bool  { return true }

// diskBytes returns about how much disk space an object takes.
func (w *wanted) diskBytes() int64 { return w.dataBytes() + roundToPages(w.sumsBytes()) }

// take implements arena.
func (a *keptArena) take(w *wanted) (ground, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.crowded = a.shards >= a.mostFiles
	if a.crowded || a.shards > 0 && a.taken+w.diskBytes() > a.most {
		return nil, false
	}
	a.taken += w.diskBytes()
	a.shards++
	return &keptShard{a: a, w: *w}, true
}

func (a *keptArena) capacity() int64 { return a.most }

func (a *keptArena) used() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken
}

func (a *keptArena) isCrowded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.crowded
}

// shorten and lengthen do nothing: the room belongs to the cache.
func (a *keptArena) shorten() error { return nil }
func (a *keptArena) lengthen() bool { return true }

// close waits until what is being removed is gone.
func (a *keptArena) close() error {
	a.waitRemoved()
	a.setAside(-a.most)
	return nil
}

func (a *keptArena) waitRemoved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.removing > 0 {
		a.removed.Wait()
	}
}

// keptShard is the place of a decoded shard in a cache: an object's two files.
type keptShard struct {
	a     *keptArena
	w     wanted
	files *pair
	// checking is held while a goroutine of the cache checks the shard, and to close its files.
	checking sync.Mutex
	leaves   atomic.Bool // it is not used any more: a check ends
	held     int64       // bytes of a reservation that has not ended
	written  int64       // the part of it that is on the disk
	counted  int64       // bytes that the room counts as kept
	claimed  bool
}

// open implements ground.
func (k *keptShard) open() (there bool, err error) {
	s := k.a.s
	k.a.waitRemoved()
	if s.health.off.Load() {
		return false, ErrNotKept
	}
	k.files, err = s.dir.openPair(&k.w, false, s.config.Clock.Now())
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, errAbsent):
		return false, nil
	}
	return false, k.failed("open", err)
}

// failed notes an error of the disk.
func (k *keptShard) failed(what string, err error) error {
	k.a.s.failed(what+" the decoded shard "+k.w.id.URL, err)
	return fmt.Errorf("%w: %s %s: %w", ErrNotKept, what, k.w.id.URL, err)
}

// mostCounting is how long a shard waits for the first count of the directory.
const mostCounting = 10 * time.Second

// reserve implements ground.
func (k *keptShard) reserve() (ours bool, err error) {
	s := k.a.s
	if !s.health.writes() {
		return false, ErrNotKept
	}
	if k.held == 0 {
		select {
		case <-s.keeper.known:
		case <-s.ahead.ctx.Done():
			return false, ErrNotKept
		case <-s.config.Clock.After(mostCounting):
		}
		n := k.w.diskBytes()
		if !s.room.hold(n) {
			// Remove objects that no mount uses.
			s.keeper.removeUnused(n)
			s.keeper.look(0, false)
			if !s.room.hold(n) {
				return false, ErrNotKept
			}
		}
		k.held = n
	}
	if k.files == nil {
		if k.files, err = s.dir.openPair(&k.w, true, s.config.Clock.Now()); err != nil {
			return false, k.failed("make", err)
		}
	}
	return k.claim(), nil
}

// claim reports whether this process is to decode the shard: false while another one does.
func (k *keptShard) claim() bool {
	switch k.a.s.dir.disk.claim(k.files.data.FD(), 0, max(k.w.dataBytes(), 1), true) {
	case nil:
		k.claimed = true
	case unix.EAGAIN, unix.EACCES:
		return false
	} // others: a file system without such locks
	return true
}

func (k *keptShard) write(pages run, content []byte) error {
	if err := k.a.s.dir.disk.write(k.files.data.FD(), content, pages.begin*pageBytes); err != nil {
		return k.failed("write", err)
	}
	k.written += pages.bytes()
	return nil
}

func (k *keptShard) writeSums(pages run, sums []byte) error {
	if err := k.a.s.dir.disk.write(k.files.sums.FD(), sums, sumsAt(pages.begin)); err != nil {
		return k.failed("write sums of", err)
	}
	k.a.s.counts.written.Add(uint64(pages.pages()))
	return nil
}

func (k *keptShard) readSums(pages run, sums []byte) error {
	n, err := k.a.s.dir.disk.read(k.files.sums.FD(), sums, sumsAt(pages.begin))
	if err != nil {
		return k.failed("read sums of", err)
	}
	clear(sums[n:])
	return nil
}

func (k *keptShard) each(pages run, visit func(file *uring.File, off, n int64)) {
	visit(k.files.data, pages.begin*pageBytes, pages.bytes())
}

// finish implements ground.
func (k *keptShard) finish() {
	k.unclaim()
	if k.held > 0 {
		k.a.s.room.put(forGood, k.held, min(k.written+k.w.sumsBytes(), k.held))
		k.held = 0
	}
	k.counted = k.w.diskBytes() // the directory has them, so they are no longer set aside
	k.a.setAside(-k.counted)
	if k.a.all {
		k.a.s.seals.written(k)
	}
}

func (k *keptShard) unclaim() {
	if k.claimed {
		_ = k.a.s.dir.disk.claim(k.files.data.FD(), 0, max(k.w.dataBytes(), 1), false)
		k.claimed = false
	}
}

// leave implements ground. Files are removed by another goroutine.
func (k *keptShard) leave(how Leaving) {
	a := k.a
	k.leaves.Store(true)
	a.mu.Lock()
	a.taken -= k.w.diskBytes()
	a.shards--
	a.removing++
	a.mu.Unlock()
	if !a.s.begin(1) { // it is closed: nothing is left to do
		k.ended(how)
		return
	}
	a.s.writers.add(leavingShard{k, how})
}

// leavingShard is a shard that is not used any more.
type leavingShard struct {
	k   *keptShard
	how Leaving
}

// run implements task.
func (l leavingShard) run() {
	defer l.k.a.s.end()
	l.k.ended(l.how)
}

func (k *keptShard) ended(how Leaving) {
	a, s := k.a, k.a.s
	k.checking.Lock()
	defer k.checking.Unlock()
	k.unclaim()
	if k.held > 0 {
		s.room.put(forGood, k.held, 0)
		k.held = 0
	}
	if k.files != nil {
		if how == Spoilt {
			// Another mount may have it open, so that it can't be removed.
			s.counts.bad.Add(1)
			if err := s.dir.spoil(k.files, run{0, pagesOf(k.w.sizeBytes)}); err != nil {
				s.failed("write sums of a decoded shard", err)
			}
		}
		k.files.close()
		k.files = nil
	}
	if how != Keep {
		gone, err := s.dir.remove(k.w.key)
		if err != nil && !errors.Is(err, errNotOur) {
			s.failed("remove a decoded shard", err)
		}
		if gone && k.counted > 0 {
			s.room.forget(k.counted)
			a.setAside(k.counted)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.removing--; a.removing == 0 {
		a.removed.Broadcast()
	}
}
