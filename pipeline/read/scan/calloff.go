package scan

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

// want notes that a reader will come to the load. It is called with Scanner.mu
// held.
func (ld *load) want(r *Reader) {
	if !slices.Contains(ld.readers, r) {
		ld.readers = append(ld.readers, r)
	}
}

// cancel drops what a reader wanted, nobody else wants, and has not begun: of
// the loads that wait for storage, for a decoder or for the spool. It does not
// wait for anything. What has begun comes, and is kept as long as there is room.
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

// takeBack says whether a load could be taken out of where it waits. If its
// memory is with storage, it is free when its reads have ended.
func (sc *Scanner) takeBack(ld *load) bool {
	switch {
	case ld.decoder != nil:
		return ld.decoder.TakeBack(ld)
	case ld.seg == nil && sc.config.Choice.Spools(ld.shard):
		return sc.spool.TakeBack(ld)
	case ld.seg == nil:
		// It waits for its shard to be mapped, or has been mapped at this moment.
		return sc.maps.Cancel(ld.shard, ld.piece)
	}
	return ld.stage.CompareAndSwap(isQueued, calledOff)
}
