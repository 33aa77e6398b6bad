package fetch

import "slices"

// Stages of a load that may be called off. The zero value is that of one that
// goes on to its end: it has begun, or is carried out by who started it.
const (
	hasBegun  = iota
	isQueued  // its reads are with storage, or on their way there, and none has begun
	calledOff // none of its reads has begun, and none will
)

// begin is asked by storage before it begins one of the load's reads: once one
// has begun, all go on.
func (ld *load) begin() bool {
	return ld.stage.CompareAndSwap(isQueued, hasBegun) || ld.stage.Load() != calledOff
}

// want notes that a reader will come to the load. It is called with Fetcher.mu
// held.
func (ld *load) want(r *Reader) {
	if !slices.Contains(ld.readers, r) {
		ld.readers = append(ld.readers, r)
	}
}

// callOff drops what a reader wanted, nobody else wants, and has not begun: of
// the loads that wait for storage, for a decoder or for the spool. It does not
// wait for anything. What has begun comes, and is kept as long as there is room.
func (f *Fetcher) callOff(r *Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ld := range f.loads {
		i := slices.Index(ld.readers, r)
		if i < 0 {
			continue
		}
		ld.readers = slices.Delete(ld.readers, i, i+1)
		if ld.waiters == 0 && len(ld.readers) == 0 && f.takeBack(ld) {
			f.counts.readsCancelled.Add(1)
			f.counts.bytesCancelled.Add(uint64(ld.layout.size))
			ld.err = errCalledOff
			f.finishLocked(ld)
		}
	}
	if f.spool != nil {
		f.unqueueSpooled()
	}
}

// takeBack says whether a load could be taken out of where it waits. If its
// memory is with storage, it is free when its reads have ended.
func (f *Fetcher) takeBack(ld *load) bool {
	from := func(list []*load) ([]*load, bool) {
		i := slices.Index(list, ld)
		if i < 0 {
			return list, false
		}
		return slices.Delete(list, i, i+1), true
	}
	took := false
	switch {
	case ld.decoder != nil:
		ld.decoder.work, took = from(ld.decoder.work)
	case ld.seg == nil && f.spools(ld.shard):
		if s := f.spool.shards[ld.shard]; s != nil {
			s.work, took = from(s.work)
		}
		if !took {
			f.spool.waiting, took = from(f.spool.waiting)
		}
	case ld.seg == nil:
		// It waits for its shard to be mapped, or has been mapped at this moment.
		took = f.maps.Cancel(ld.shard, ld.piece)
	default:
		took = ld.stage.CompareAndSwap(isQueued, calledOff)
	}
	return took
}

// unqueueSpooled drops shards of which nothing is wanted, and that nobody has
// begun to decode.
func (f *Fetcher) unqueueSpooled() {
	p := f.spool
	dropped := false
	p.queue = slices.DeleteFunc(p.queue, func(s *spooled) bool {
		if len(s.work) > 0 {
			return false
		}
		f.dropSpooled(s)
		dropped = true
		return true
	})
	if dropped {
		f.admitWaiting()
	}
}
