package cached

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// countEvery is how often the directory is counted: others add to it, too.
	countEvery = 60 * time.Second
	// touchEvery is how often what this mount uses is marked as used.
	touchEvery = time.Hour
)

// keeper is a goroutine that counts the directory, marks what is in use, and removes
// what nobody uses where room is needed.
type keeper struct {
	s      *Storage
	wake   chan struct{}
	stop   chan struct{}
	ended  sync.WaitGroup
	counts atomic.Uint64 // of the directory, ended
	asked  atomic.Bool   // to count
	cleans atomic.Bool   // to clean first
	known  chan struct{} // closed after the first count
}

func newKeeper(s *Storage) *keeper {
	return &keeper{s: s, wake: make(chan struct{}, 1), stop: make(chan struct{}), known: make(chan struct{})}
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

// count has the directory counted.
func (k *keeper) count() {
	k.asked.Store(true)
	k.poke()
}

// clean has objects that nobody uses removed.
func (k *keeper) clean() {
	k.cleans.Store(true)
	k.poke()
}

func (k *keeper) serve() {
	s := k.s
	tick := s.config.Clock.After(countEvery)
	touched := s.config.Clock.Now()
	for {
		select {
		case <-k.stop:
			return
		case <-tick:
			tick = s.config.Clock.After(countEvery)
			k.asked.Store(true)
		case <-k.wake:
		}
		if s.health.off.Load() {
			continue
		}
		now := s.config.Clock.Now()
		touch := now.Sub(touched) >= touchEvery
		if touch {
			touched = now
		}
		cleans := k.cleans.Swap(false)
		if k.asked.Swap(false) || cleans || touch {
			k.look(cleans, touch)
		}
		s.ahead.poke() // there may be room now
	}
}

// look counts the directory.
func (k *keeper) look(cleans, touch bool) {
	s := k.s
	if cleans {
		k.removeUnused()
		k.trim()
	}
	base := s.room.counting()
	found, others := int64(0), false
	err := s.dir.files(func(f file) error {
		found += f.blocks
		mine := s.isMine(f.key)
		others = others || !mine
		if mine && touch && f.sums {
			k.touch(f)
		}
		return nil
	})
	if err != nil {
		s.failed("count the directory", err)
		return
	}
	// Where nothing could be removed there is nothing to try again before the next tick.
	s.room.counts(base, found, others, cleans)
	if k.counts.Add(1) == 1 {
		close(k.known)
	}
}

// isMine says whether an object is one that this mount has listed or read.
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
