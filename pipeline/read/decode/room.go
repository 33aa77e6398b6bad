package decode

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

const (
	// leastRoomBytes is what decoders may hold together however small the
	// budget is: some tens of ordinary ones, which have windows below 1 MiB.
	leastRoomBytes = 32 << 20
	// maxGarbageBytes is how much closed decoders may leave behind before the
	// heap is collected. At the collector's own pace it would be as much as
	// lives: half of the budget, beside segments that have taken its place.
	maxGarbageBytes = 32 << 20
	// usedAgainBytes is how much a closed decoder has held at most whose buffers are used
	// again, and maxSpareBytes what lies in pools for that.
	usedAgainBytes = 2 << 20
	maxSpareBytes  = 8 << 20
	// stalledNanos is for how long a decoder may have got nothing from storage
	// until those that wait for its memory take theirs beside it.
	stalledNanos = int64(5 * time.Second)
)

// memory is what a decoder holds, or is about to hold for the member that it
// has seen the head of. It is called from its goroutine.
func (d *Decoder) memory() int64 {
	n := d.raw.memory() + d.own + int64(cap(d.tail))
	if d.dec != nil {
		n += d.dec.MemoryBytes()
	}
	return n
}

// makeRoom waits until there is memory for the member that a decoder is about
// to begin: a window may be as large as the whole budget, and is not known
// before. One decoder may always exceed what there is, so one gets on; those
// that wait let go of the processor.
func (s *Set) makeRoom(d *Decoder) {
	want := d.memory()
	s.mu.Lock()
	for want > d.held && s.held-d.held+s.garbage+max(s.spare, want) > s.most() && !s.closed {
		if s.closeOldest() {
			continue
		}
		s.garbage, s.spare = s.garbage+s.spare, 0
		if s.garbage > 0 && !s.collecting {
			s.collect()
			continue
		}
		if !s.collecting && !s.othersWork(d) {
			break
		}
		d.waits = true
		s.waiting++
		d.raw.got.Store(s.c.Now()) // what it waits for gets on
		changed := s.changed
		s.mu.Unlock()
		s.GiveCore()
		select {
		case <-changed:
		case <-time.After(min(time.Second, s.c.Patience/4)):
		}
		s.TakeCore()
		s.mu.Lock()
		s.waiting--
		d.waits = false
	}
	s.hold(d, want)
	s.mu.Unlock()
	s.work.Shrink()
}

// most is what decoders may hold together. Where the limit has been lowered, so is the
// least that there is always.
func (s *Set) most() int64 {
	limit, least := s.limit.Load(), int64(leastRoomBytes)
	if full := s.c.LimitBytes; limit < full {
		least = int64(leastRoomBytes * (float64(limit) / float64(full)))
	}
	return max(limit, least)
}

// othersWork says whether memory will be given back by decoders that get on.
func (s *Set) othersWork(d *Decoder) bool {
	for o := range s.all {
		if o != d && o.running && !o.waits && o.raw.got.Load() > s.c.Now()-stalledNanos {
			return true
		}
	}
	return false
}

// leave notes what a closed decoder has left: to the next one, where it is little and so lies
// in a pool, else to the collector. Of many small shards each would else cost a share of a
// collection. It is called with mu held.
func (s *Set) leave(bytes int64) {
	if bytes > usedAgainBytes || s.spare+bytes > maxSpareBytes {
		s.discard(bytes)
		return
	}
	s.spare += bytes
}

// discard notes that a closed decoder's memory is the collector's now, and has
// it collected when that is much. It is called with mu held.
func (s *Set) discard(bytes int64) {
	s.garbage += bytes
	if s.garbage < maxGarbageBytes || s.collecting || s.closed {
		return
	}
	s.collecting = true
	s.goroutines.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.collect()
	})
}

// collect gives the memory of closed decoders back to the system. It is called
// with mu held, and lets go of it meanwhile.
func (s *Set) collect() {
	s.collecting = true
	was := s.garbage
	s.mu.Unlock()
	if !s.c.Dry {
		runtime.GC() // what a sync.Pool has is left for one collection
		debug.FreeOSMemory()
	}
	s.mu.Lock()
	s.collecting = false
	s.garbage -= was
	s.wake()
}

// wake wakes those that wait for memory.
func (s *Set) wake() {
	if s.waiting > 0 {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// TakeCore waits for a core to decode on; GiveCore lets others have it.
func (s *Set) TakeCore() {
	s.cores <- struct{}{}
	s.c.Meter.Working[meter.Decompress].Begin(meter.Now())
}

// GiveCore gives back what TakeCore took.
func (s *Set) GiveCore() {
	s.c.Meter.Working[meter.Decompress].End(meter.Now())
	<-s.cores
}

// Cores is how many decoders decode at a time.
func (s *Set) Cores() int { return cap(s.cores) }

// Busy says that decoders are at work on all cores just now.
func (s *Set) Busy() bool { return len(s.cores) == cap(s.cores) }
