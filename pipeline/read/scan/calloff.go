package scan

import "slices"

// Stages of a load. Only a queued one can be cancelled. The zero value is hasBegun: it has begun,
// or the caller that started it submits its reads.
const (
	hasBegun  = iota
	isQueued  // its reads are with storage, or about to be, and none has begun
	calledOff // none of its reads has begun, and none will
)

// begin is called by storage before it begins one of the load's reads, and reports whether it may.
// Once one has begun, all of them complete.
func (ld *load) begin() bool {
	return ld.stage.CompareAndSwap(isQueued, hasBegun) || ld.stage.Load() != calledOff
}

// want notes that a reader will need the load. It is called with Scanner.mu held.
func (ld *load) want(r *Reader) {
	if !slices.Contains(ld.readers, r) {
		ld.readers = append(ld.readers, r)
	}
}

// cancel drops what only this reader wanted and has not begun: loads that wait for storage, for a
// decoder or for the spool. It does not wait. Loads that have begun complete, and are kept if there
// is room.
func (sc *Scanner) cancel(r *Reader) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, ld := range sc.loads {
		i := slices.Index(ld.readers, r)
		if i < 0 {
			continue
		}
		ld.readers = slices.Delete(ld.readers, i, i+1)
		if !ld.Waited() && len(ld.readers) == 0 && sc.takeBack(ld) {
			sc.counts.readsCancelled.Add(1)
			sc.counts.bytesCancelled.Add(uint64(ld.layout.SizeBytes))
			ld.err = errCalledOff
			sc.finishLocked(ld)
		}
	}
	if sc.spool != nil {
		sc.newsOfSpool(sc.spool.Unqueue())
	}
}

// takeBack cancels a load if it has not begun, and reports whether it did. If its memory is with
// storage, it is freed when the reads have ended.
func (sc *Scanner) takeBack(ld *load) bool {
	switch {
	case ld.decoder != nil:
		return ld.decoder.TakeBack(ld)
	case ld.seg == nil && sc.o.Choice.Spools(ld.shard):
		return sc.spool.TakeBack(ld)
	case ld.seg == nil:
		// It waits for its shard to be mapped, or has just been mapped.
		return sc.maps.Cancel(ld.shard, ld.piece)
	}
	return ld.stage.CompareAndSwap(isQueued, calledOff)
}
