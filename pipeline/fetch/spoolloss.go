package fetch

import "github.com/lsiofs/lsiofs/pipeline/fetch/budget"

// avoids says whether a shard is read without the spool for a while.
func (f *Fetcher) avoids(shard int) bool { return f.spool.losses.Avoids(shard, f.now()) }

// lostInSpool is called when a load was read from the spool and is not what was written
// there, or could not be read. The shard leaves the spool, and the load is brought
// from the dataset: through the spool once more at most, so it ends.
func (f *Fetcher) lostInSpool(ld *load, why error) {
	p, s := f.spool, ld.spooled
	f.mu.Lock()
	p.losses.Pieces++
	warn := false
	if !s.damaged {
		s.damaged = true
		warn = p.losses.Add(s.shard, f.now())
	}
	shards := p.losses.Shards
	if !s.dropped {
		f.dropSpooled(s)
		waiting := s.work
		s.work = nil
		for _, other := range waiting {
			f.bringAgain(other)
		}
	}
	ld.seg.pins.Unpin()
	ld.seg, ld.spooled = nil, nil
	ld.failed.Store(nil)
	ld.stage.Store(hasBegun)
	f.bringAgain(ld)
	ld.damaged = true
	f.admitWaiting()
	f.mu.Unlock()
	if warn {
		f.log.Warn("the spool can't be read back, or gives other bytes than were written; what is damaged is decoded again, which is right but slower: look at the disk of the spool and its free space, or mount with another --spool-dir",
			"spool", p.file.Dir, "shard", f.index.Shard(s.shard).Object.Path, "reason", why, "shards_damaged", shards)
	}
}

// bringAgain gives a load of a shard that was dropped to those who can bring it. What
// was read ahead, and nobody waits for, is left to who comes to it.
func (f *Fetcher) bringAgain(ld *load) {
	switch {
	case f.closed:
		ld.err = errClosed
	case ld.waiters == 0:
		ld.err = errCalledOff
	case ld.damaged || f.avoids(ld.shard):
		f.assign(ld, budget.Demanded)
	default:
		f.assignSpool(ld, budget.Demanded)
	}
	if ld.err != nil {
		f.finishLocked(ld)
	}
}
