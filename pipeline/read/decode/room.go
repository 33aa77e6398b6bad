package decode

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

const (
	// leastRoomBytes is the memory that all decoders together may hold however small the budget
	// is: enough for some tens of ordinary decoders, whose windows are below 1 MiB.
	leastRoomBytes = 32 << 20
	// maxGarbageBytes is how much garbage closed decoders may leave before a collection is
	// forced. At the collector's own pace garbage would grow to the size of the live heap, which
	// is half of the budget, in addition to the segments that have taken its place.
	maxGarbageBytes = 32 << 20
	// usedAgainBytes is the most memory that a decoder may have held for its buffers to be reused
	// after it is closed; maxSpareBytes limits the bytes kept in pools for reuse.
	usedAgainBytes = 2 << 20
	maxSpareBytes  = 8 << 20
	// stalledNanos is how long a decoder may receive nothing from storage before decoders that
	// wait for its memory exceed the limit instead.
	stalledNanos = int64(5 * time.Second)
)

// memory returns the bytes that the decoder holds, or is about to hold for the member whose header
// it has read. It is called from the decoder's goroutine.
func (d *Decoder) memory() int64 {
	n := d.raw.memory() + d.own + int64(cap(d.tail))
	if d.dec != nil {
		n += d.dec.MemoryBytes()
	}
	return n
}

// makeRoom waits until there is memory for the member that d is about to begin. A window may be as
// large as the whole budget, and its size is not known earlier. One decoder may always exceed the
// limit, so that at least one makes progress. A waiting decoder releases its core.
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
		d.raw.got.Store(s.now()) // the decoders it waits for make progress
		changed := s.changed
		s.mu.Unlock()
		s.GiveCore()
		if !s.Step() {
			select {
			case <-changed:
			case <-time.After(min(time.Second, s.o.ReadTimeout/4)):
			}
		}
		s.TakeCore()
		s.mu.Lock()
		s.waiting--
		d.waits = false
	}
	s.hold(d, want)
	s.mu.Unlock()
	if s.owner != nil {
		s.owner.Shrink()
	}
}

// most returns the bytes that all decoders together may hold. If the limit has been lowered,
// leastRoomBytes is scaled down in proportion.
func (s *Set) most() int64 {
	limit, least := s.limit.Load(), int64(leastRoomBytes)
	if full := s.o.Survey.Limits.DecoderBytes; limit < full {
		least = int64(leastRoomBytes * (float64(limit) / float64(full)))
	}
	return max(limit, least)
}

// othersWork reports whether another decoder is making progress and so will free memory.
func (s *Set) othersWork(d *Decoder) bool {
	if s.steps {
		return len(s.ready) > 0
	}
	for o := range s.all {
		if o != d && o.running && !o.waits && o.raw.got.Load() > s.now()-stalledNanos {
			return true
		}
	}
	return false
}

// leave accounts for the memory of a closed decoder. A small amount stays in a pool for the next
// decoder; a larger one is left to the collector. Without the pool, each of many small shards would
// cost a share of a collection. It is called with mu held.
func (s *Set) leave(bytes int64) {
	if bytes > usedAgainBytes || s.spare+bytes > maxSpareBytes {
		s.discard(bytes)
		return
	}
	s.spare += bytes
}

// discard counts a closed decoder's memory as garbage, and starts a collection once there are
// maxGarbageBytes of it. It is called with mu held.
func (s *Set) discard(bytes int64) {
	s.garbage += bytes
	if s.garbage < maxGarbageBytes || s.collecting || s.closed {
		return
	}
	if s.o.Dry != nil {
		s.garbage = 0
		return
	}
	s.collecting = true
	s.goroutines.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.collect()
	})
}

// collect returns the memory of closed decoders to the system. It is called with mu held, and
// releases it while it collects.
func (s *Set) collect() {
	s.collecting = true
	was := s.garbage
	s.mu.Unlock()
	if s.o.Dry == nil {
		runtime.GC() // the contents of a sync.Pool survive one collection
		debug.FreeOSMemory()
	}
	s.mu.Lock()
	s.collecting = false
	s.garbage -= was
	s.wake()
}

// wake wakes the decoders that wait for memory.
func (s *Set) wake() {
	if s.waiting > 0 {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// TakeCore waits for a core to decode on; GiveCore releases it.
func (s *Set) TakeCore() {
	s.cores <- struct{}{}
	s.o.Meter.Working[meter.Decompress].Begin(meter.Now())
}

// GiveCore releases the core that TakeCore acquired.
func (s *Set) GiveCore() {
	s.o.Meter.Working[meter.Decompress].End(meter.Now())
	<-s.cores
}

// Cores returns how many decoders can decode at the same time.
func (s *Set) Cores() int { return cap(s.cores) }

// Busy reports whether decoders are using all cores.
func (s *Set) Busy() bool { return len(s.cores) == cap(s.cores) }
