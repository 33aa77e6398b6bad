package fetch

import (
	"time"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
)

// losses are what the spool did not give back as it was written: its disk was full
// when the kernel came to write, it failed, or somebody has written there.
// Everything is guarded by Fetcher.mu.
type losses struct {
	pieces, shards uint64       // so far
	of             map[int]loss // by shard
	warned         int64        // Fetcher.now of the last warning, 0 before the first
}

// loss is what is remembered of a shard that was damaged in the spool.
type loss struct {
	times int
	until int64 // Fetcher.now from when on it is forgotten
}

const (
	// spoolTries is how often a shard goes into the spool until it is read without.
	// The second time works where a disk has lost a few blocks.
	spoolTries = 2
	// lossNanos is for how long a loss is remembered: a disk that is full may have
	// room again, and to find out that it has none costs decoding all of it.
	lossNanos = int64(10 * time.Minute)
	// warnNanos is the least time between two warnings.
	warnNanos = int64(time.Minute)
)

// avoids says whether a shard is read without the spool for a while: decoders then
// bring its pieces, each going through the shard up to there. That is slow, and right.
func (f *Fetcher) avoids(shard int) bool {
	l := f.spool.losses.of[shard]
	return l.times >= spoolTries && f.now() < l.until
}

// lostInSpool is called when a load was read from the spool and is not what was written
// there, or could not be read. The shard leaves the spool, and the load is brought
// from the dataset: through the spool once more at most, so it ends.
func (f *Fetcher) lostInSpool(ld *load, why error) {
	p, s := f.spool, ld.spooled
	f.mu.Lock()
	p.losses.pieces++
	warn := false
	if !s.damaged {
		s.damaged = true
		warn = p.losses.add(s.shard, f.now())
	}
	shards := p.losses.shards
	if !s.dropped {
		f.dropSpooled(s)
		waiting := s.work
		s.work = nil
		for _, other := range waiting {
			f.bringAgain(other)
		}
	}
	ld.seg.Pins.Unpin()
	ld.seg, ld.spooled = nil, nil
	ld.failed.Store(nil)
	ld.stage.Store(hasBegun)
	f.bringAgain(ld)
	ld.damaged = true
	f.admitWaiting()
	f.mu.Unlock()
	if warn {
		f.log.Warn("the spool can't be read back, or gives other bytes than were written; what is damaged is decoded again, which is right but slower: look at the disk of the spool and its free space, or mount with another --spool-dir",
			"spool", p.file.dir, "shard", f.index.Shard(s.shard).Object.Path, "reason", why, "shards_damaged", shards)
	}
}

// add notes that a shard was damaged, and says whether to warn of it.
func (l *losses) add(shard int, now int64) (warn bool) {
	l.shards++
	x := l.of[shard]
	if now >= x.until {
		x.times = 0
	}
	l.of[shard] = loss{x.times + 1, now + lossNanos}
	if warn = l.warned == 0 || now >= l.warned+warnNanos; warn {
		l.warned = now
	}
	return warn
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
