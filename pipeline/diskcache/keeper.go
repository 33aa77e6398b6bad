package diskcache

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// countEvery is how often the directory is counted: other processes add to it, too.
	countEvery = 60 * time.Second
	// touchEvery is how often what this mount uses is marked as used.
	touchEvery = time.Hour
	// restTimes is by how many times its own duration a count delays the next one: counting a large
	// directory takes at most a twentieth of a core.
	restTimes = 20
	// quickCount is how long a read may wait for a count. A count takes some 0.2 ms for a hundred
	// objects, 0.2 s for 10⁵.
	quickCount = 20 * time.Millisecond
)

// keeper is a goroutine that counts the directory, marks what is in use, and removes unused objects
// when room is needed.
type keeper struct {
	s      *Storage
	wake   chan struct{}
	stop   chan struct{}
	ended  sync.WaitGroup
	counts atomic.Uint64 // counts of the directory that have ended
	asked  atomic.Bool   // a count is requested
	least  atomic.Int64  // make room for that many bytes first
	known  chan struct{} // closed after the first count
	took   atomic.Int64  // duration of the last count, in nanoseconds
	quick  time.Duration // quickCount, except in tests

	looking sync.Mutex // held while counting
}

func newKeeper(s *Storage) *keeper {
	return &keeper{s: s, wake: make(chan struct{}, 1), stop: make(chan struct{}), known: make(chan struct{}), quick: quickCount}
}

func (k *keeper) start() {
	k.asked.Store(true)
	k.poke()
	k.ended.Go(k.serve)
}

func (k *keeper) close() {
	close(k.stop)
	k.ended.Wait()
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// count requests a count of the directory.
func (k *keeper) count() {
	k.asked.Store(true)
	k.poke()
}

// countNow counts the directory now, if the last count was quick enough.
func (k *keeper) countNow() bool {
	if k.counts.Load() == 0 || k.took.Load() > int64(k.quick) {
		return false
	}
	k.look(0, false)
	return true
}

// clean requests room for that many bytes.
func (k *keeper) clean(least int64) {
	k.least.Store(least)
	k.poke()
}

func (k *keeper) serve() {
	s := k.s
	tick := s.config.Clock.After(countEvery)
	touched := s.config.Clock.Now()
	rested := time.NewTimer(0) // requests are handled when it has fired
	defer rested.Stop()
	resting := true
	for {
		select {
		case <-k.stop:
			return
		case <-tick:
			tick = s.config.Clock.After(countEvery)
			k.asked.Store(true)
		case <-rested.C:
			resting = false
		case <-k.wake:
		}
		if s.health.off.Load() {
			s.ahead.poke() // a fill that waits for room comes to its end
			continue
		}
		if resting {
			continue
		}
		now := s.config.Clock.Now()
		touch := now.Sub(touched) >= touchEvery
		if touch {
			touched = now
		}
		least := k.least.Swap(0)
		if k.asked.Swap(false) || least > 0 || touch {
			start := time.Now()
			k.look(least, touch)
			resting = true
			rested.Reset(min(restTimes*time.Since(start), countEvery/2))
		}
		s.ahead.poke() // there may be room now
	}
}

// look counts the directory. If least is positive, it makes room for that many bytes first.
func (k *keeper) look(least int64, touch bool) {
	s := k.s
	if least > 0 {
		k.removeUnused(least)
		k.trim()
	}
	k.looking.Lock()
	defer k.looking.Unlock()
	start := time.Now()
	base, drops := s.room.counting()
	found, others := int64(0), false
	gone := s.ahead.replacing()
	err := s.dir.files(func(f file) error {
		found += f.blocks
		mine := s.isMine(f.key)
		others = others || !mine
		delete(gone, f.key)
		if mine && touch && f.sums {
			k.touch(f)
		}
		return nil
	})
	if err != nil {
		s.failed("count the directory", err)
		return
	}
	// If nothing could be removed, there is nothing to try again before the next tick.
	s.room.counts(base, drops, found, others, least > 0)
	s.ahead.fillGone(gone)
	k.took.Store(int64(time.Since(start)))
	if k.counts.Add(1) == 1 {
		close(k.known)
	}
}

// isMine reports whether this mount has listed or read an object.
func (s *Storage) isMine(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, mine := s.mine[k]
	return mine
}

func (k *keeper) touch(f file) {
	d := k.s.dir.disk
	fd, err := d.open(f.folder, f.name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return // it has gone
	}
	defer d.close(fd)
	_ = d.touch(fd, k.s.config.Clock.Now())
}

// removeUnused makes room: it removes objects that no living mount uses, least recently used first,
// until there is permanent room for that many bytes.
func (k *keeper) removeUnused(least int64) {
	s := k.s
	all, err := s.dir.objects()
	if err != nil {
		s.failed("look for what nobody uses", err)
		return
	}
	used := int64(0)
	for i := range all {
		used += all[i].blocks
	}
	_, shared, _ := s.room.usage()
	good := s.room.goodBytes()
	most := good - max(least, roomMade(good))
	removed := 0
	for i := range all {
		if used-shared <= most {
			break
		}
		if s.isMine(all[i].key) {
			continue
		}
		gone, err := s.dir.remove(all[i].key)
		if err != nil && !errors.Is(err, errNotOur) {
			s.failed("remove what nobody uses", err)
			return
		}
		if gone {
			used -= all[i].blocks
			removed++
		}
	}
	if removed > 0 {
		s.config.Log.Info("objects that no mount uses were removed from the cache to make room", "dir", s.dir.path, "objects", removed)
	}
}

// roomMade returns how much room is made at least, so that it isn't done for each read.
func roomMade(bound int64) int64 { return min(bound/16, 256<<20) }

// trim frees pages of this mount's own objects, the last ones of each, if pages of a mount that was
// killed, or of a larger bound, leave no room for the share: without the share nothing new could be
// read chunk by chunk. Pages of the share that are on the disk meanwhile could be mistaken for such
// pages, so then it frees nothing.
func (k *keeper) trim() {
	s := k.s
	turn, unshared := s.room.unshared()
	if !unshared || !s.room.shares() {
		return
	}
	all, err := s.dir.objects()
	if err != nil {
		s.failed("make room for the share", err)
		return
	}
	over := -s.room.goodBytes()
	for i := range all {
		over += all[i].blocks
	}
	if now, unshared := s.room.unshared(); !unshared || now != turn {
		return
	}
	plain := s.plainKeys()
	for i := 0; i < len(all) && over > 0; i++ {
		if !s.isMine(all[i].key) || plain[all[i].key] {
			continue
		}
		freed, err := s.dir.trim(all[i].key, over)
		if err != nil {
			s.failed("make room for the share", err)
			return
		}
		over -= freed
	}
}

// trim frees about n bytes of an object's pages, its last ones, and returns how many.
func (c *directory) trim(k key, n int64) (freed int64, err error) {
	o, err := c.openStored(k)
	if err != nil {
		return 0, nil // it is damaged or gone, so it takes no room
	}
	defer o.close()
	for end := o.pages(); end > 0 && freed < n; {
		begin := max(0, end-sumsAtOnce)
		sums, err := o.readSums(run{begin, end})
		if err != nil {
			return freed, err
		}
		from := end
		for from > begin && freed < n {
			from--
			if sumOf(sums, from-begin) != 0 {
				freed += pageBytes
			}
		}
		if err := o.drop(run{from, end}); err != nil {
			return freed, err
		}
		end = from
	}
	return freed, nil
}
