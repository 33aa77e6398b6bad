package fetch

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
)

const (
	// leastRoomBytes is what decoders may hold together however small the
	// budget is: some tens of ordinary ones, which have windows below 1 MiB.
	leastRoomBytes = 32 << 20
	// maxGarbageBytes is how much closed decoders may leave behind before the
	// heap is collected. At the collector's own pace it would be as much as
	// lives: half of the budget, beside segments that have taken its place.
	maxGarbageBytes = 32 << 20
	// stalledNanos is for how long a decoder may have got nothing from storage
	// until those that wait for its memory take theirs beside it.
	stalledNanos = int64(5 * time.Second)
)

// memory is what a decoder holds, or is about to hold for the member that it
// has seen the head of. It is called from its goroutine.
func (d *decoder) memory() int64 {
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
func (f *Fetcher) makeRoom(d *decoder) {
	want := d.memory()
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &f.decoders
	for want > d.held && x.held-d.held+x.garbage+want > max(f.limits.DecoderBytes, leastRoomBytes) && !f.closed {
		if f.closeOldest() {
			continue
		}
		if x.garbage > 0 && !x.collecting {
			f.collect()
			continue
		}
		if !x.collecting && !f.othersWork(d) {
			break
		}
		d.waits = true
		x.waiting++
		d.raw.got.Store(f.now()) // what it waits for gets on
		changed := x.changed
		f.mu.Unlock()
		f.giveCore()
		select {
		case <-changed:
		case <-time.After(min(time.Second, f.config.ReadTimeout/4)):
		}
		f.takeCore()
		f.mu.Lock()
		x.waiting--
		d.waits = false
	}
	f.holdDecoder(d, want)
	f.cache.shrink()
}

// othersWork says whether memory will be given back by decoders that get on.
func (f *Fetcher) othersWork(d *decoder) bool {
	for o := range f.decoders.all {
		if o != d && o.running && !o.waits && o.raw.got.Load() > f.now()-stalledNanos {
			return true
		}
	}
	return false
}

// discard notes that a closed decoder's memory is the collector's now, and has
// it collected when that is much. It is called with mu held.
func (f *Fetcher) discard(bytes int64) {
	x := &f.decoders
	x.garbage += bytes
	if x.garbage < maxGarbageBytes || x.collecting || f.closed {
		return
	}
	x.collecting = true
	f.running.Go(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.collect()
	})
}

// collect gives the memory of closed decoders back to the system. It is called
// with mu held, and lets go of it meanwhile.
func (f *Fetcher) collect() {
	x := &f.decoders
	x.collecting = true
	was := x.garbage
	f.mu.Unlock()
	runtime.GC() // what a sync.Pool has is left for one collection
	debug.FreeOSMemory()
	f.mu.Lock()
	x.collecting = false
	x.garbage -= was
	f.wakeDecoders()
}

// wakeDecoders wakes those that wait for memory.
func (f *Fetcher) wakeDecoders() {
	if f.decoders.waiting > 0 {
		close(f.decoders.changed)
		f.decoders.changed = make(chan struct{})
	}
}

// shrink frees segments until the budget, which decoders have made smaller, is
// kept again, or nothing more can be freed.
func (c *cache) shrink() {
	for c.excess(0, true) > 0 {
		if freed, err := c.evict(budget.Ahead); err != nil || !freed {
			return
		}
	}
}
