package diskcache

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Mounts that start together over an empty cache miss the same pages at the same time. One of them
// fetches a page, and the others wait until it is on the disk:
//
//	launch ─► claim ─┬─► it is ours: read below, written, unclaimed
//	                 └─► another process has it ─► await ─┬─► the pages are here
//	                                                      └─► they don't come: read below
//
// A claim is a kernel lock (F_OFD_SETLK) on the pages' range of the .data file. The .sums file has
// a flock, and some file systems implement flock by such locks. Claims are never waited for in the
// kernel, and end with their process. A process that was stopped keeps its claims, so each wait is
// bounded. Claims only decide who fetches: without them every mount does.

const (
	// leastPoll and mostPoll bound the interval between checks for pages that another process
	// fetches: the next check is when the wait has become a quarter longer.
	leastPoll, mostPoll = 2 * time.Millisecond, 100 * time.Millisecond
	// A reader waits for another process that fetches nothing for twice as long as the slowest
	// recent read below of this mount took; firstPatience is for a mount that has not read below
	// yet. If the other process fetches other pages meanwhile, like one whose requests queue for
	// connections, the reader waits busyFactor times as long.
	leastPatience, firstPatience = 250 * time.Millisecond, 2 * time.Second
	busyFactor                   = 8
	// mostPatience bounds all of these. Flights that no reader waits for wait that long.
	mostPatience = 15 * time.Second
	// idlePatience is how long other processes may deliver nothing that is waited for. After that
	// they count as stopped, and for mistrustTime none is waited for.
	idlePatience, mistrustTime = 2 * time.Second, 30 * time.Second
)

// claims is what a Storage knows about the processes that share its directory.
type claims struct {
	mu       sync.Mutex
	slowest  time.Duration // of the recent reads below; 0 before the first
	since    time.Time     // when the current wait began, or when others last delivered something
	looked   time.Time     // when pages were last looked for
	mistrust time.Time     // no other process is waited for until then
}

// took notes how long a read below took. The slowest one is forgotten gradually.
func (c *claims) took(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest = max(d, c.slowest-c.slowest/8, 1)
}

// brought notes that pages came from another process.
func (c *claims) brought(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = now
}

// waits reports whether a flight keeps waiting for another process. It began to wait at awaited,
// and a reader has waited for it since demanded (zero: none has).
func (c *claims) waits(now, awaited, demanded time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) >= idlePatience && c.since.Before(awaited) {
		c.since = awaited // nothing was waited for until then
	}
	c.looked = now
	if now.Sub(c.since) >= idlePatience && !now.Before(c.mistrust) {
		c.mistrust = now.Add(mistrustTime)
		c.since = c.mistrust
	}
	if now.Before(c.mistrust) {
		return false
	}
	if demanded.IsZero() {
		return now.Sub(awaited) < mostPatience
	}
	patience := firstPatience
	if c.slowest > 0 {
		patience = max(2*c.slowest, leastPatience)
	}
	last := demanded
	if c.since.After(last) {
		last = c.since
	}
	return now.Sub(last) < min(patience, mostPatience) && now.Sub(demanded) < min(busyFactor*patience, mostPatience)
}

// claim reports whether the flight may read its pages below: false while another process does.
func (f *flight) claim() bool {
	s := f.s
	files := s.opened(f.object, true)
	if files == nil {
		return true
	}
	switch s.dir.disk.claim(files.data.FD(), f.pages.begin*pageBytes, f.pages.bytes(), true) {
	case nil:
		f.claimed = true
	case unix.EAGAIN, unix.EACCES:
		return false
	} // others: a file system without such locks
	return true
}

// unclaim ends the flight's claim, if it has one.
func (f *flight) unclaim() {
	if files := f.object.files.Load(); f.claimed && files != nil { // the flight uses the object: they stay open
		_ = f.s.dir.disk.claim(files.data.FD(), f.pages.begin*pageBytes, f.pages.bytes(), false)
	}
	f.claimed = false
}

// await makes the flight wait for another process, which has claimed its pages.
func (f *flight) await() {
	f.awaited = f.s.config.Clock.Now()
	f.stage = stageAwait
	f.lookLater(0)
}

// lookLater checks for the flight's pages after a while. The flight is in progress, so Close waits
// for that.
func (f *flight) lookLater(waited time.Duration) {
	time.AfterFunc(min(max(waited/4, leastPoll), mostPoll), func() { f.s.readers.add(f) })
}

// look checks for the flight's pages, which another process has claimed.
func (f *flight) look() {
	now := f.s.config.Clock.Now()
	if f.demanded.IsZero() && f.isDemanded() {
		f.demanded = now
	}
	switch {
	case !f.wanted():
		f.arrive(storage.ErrUnwanted)
	case f.readBack():
		f.s.claims.brought(now)
		f.arrive(nil)
	case f.claim():
		// The other may have written them just before its claim ended.
		if f.readBack() {
			f.s.claims.brought(now)
			f.arrive(nil)
			return
		}
		f.readBelow()
	case f.s.claims.waits(now, f.awaited, f.demanded):
		f.lookLater(now.Sub(f.awaited))
	default:
		f.readBelow()
	}
}

// arrive handles the result of a read below, as landed does.
func (f *flight) arrive(err error) {
	f.stage = stageLanded
	f.landed(err)
}

// isDemanded reports whether a reader waits for the flight.
func (f *flight) isDemanded() bool {
	f.object.mu.Lock()
	defer f.object.mu.Unlock()
	return len(f.subs) > 0
}

// readBack reads the flight's pages from the disk. It reports whether all of them are there and
// match their sums.
func (f *flight) readBack() bool {
	s, o := f.s, f.object
	files := s.opened(o, false)
	if files == nil || s.health.off.Load() {
		return false
	}
	sums := make([]byte, f.pages.pages()*sumBytes)
	if n, err := s.dir.disk.read(files.sums.FD(), sums, sumsAt(f.pages.begin)); err != nil || n < len(sums) || len(missing(sums, f.pages.begin, 0)) > 0 {
		return false
	}
	if n, err := s.dir.disk.read(files.data.FD(), f.buf, f.pages.begin*pageBytes); err != nil || n < len(f.buf) {
		return false
	}
	for i := range f.pages.pages() {
		if o.summer.sum(f.pages.begin+i, f.buf[i*pageBytes:][:pageBytes]) != sumOf(sums, i) {
			return false
		}
	}
	return true
}
