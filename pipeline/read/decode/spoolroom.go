package decode

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// admit takes room for a shard and queues it for decoding. It returns nil if there is no room now:
// shards that are being decoded or read can't be dropped. It also returns nil while a dropped place
// of the shard is in use: in a disk cache both would have the same files, and leaving the old place
// would remove what was written for the new one. It is called with mu held.
func (p *Spool) admit(shard int, u budget.Urgency) *Place {
	if p.old[shard] > 0 {
		return nil
	}
	size := p.shards.DecodedBytes(shard)
	decoded, ok := p.shelf.Take(shard, size)
	if !ok && u != budget.Demand && p.refused > 0 && p.now() < p.refused+refusalNanos {
		return nil
	}
	for !ok {
		if p.leaving >= diskcache.RoomBytes(size) {
			return nil // enough room is about to become free; no other shard need be dropped
		}
		victim := p.leastWanted(u)
		if victim == nil {
			p.refused = p.now()
			return nil
		}
		victim.keep = p.shelf.Crowded()
		p.drop(victim)
		decoded, ok = p.shelf.Take(shard, size)
	}
	records, wanted := p.shards.Records(shard)
	s := &Place{shard: shard, decoded: decoded, gone: make([]atomic.Uint64, (records+63)/64)}
	s.left.Store(int64(wanted))
	p.holdTables(s.tableBytes())
	p.places[shard] = s
	p.order = append(p.order, s)
	p.queue = append(p.queue, s)
	p.clocks[shard].Store(p.now())
	p.startDecoding()
	return s
}

// leastWanted returns the shard to drop, nil for none: the oldest whose records have all been
// delivered; else the oldest that no reader needs soon; else, if a reader waits, the oldest whose
// pieces that are needed soon are all in memory; else, if a reader waits, the oldest.
func (p *Spool) leastWanted(u budget.Urgency) *Place {
	oldest := func(good func(s *Place) bool) *Place {
		for _, s := range p.order {
			if s.whole && s.reading == 0 && good(s) {
				return s
			}
		}
		return nil
	}
	s := oldest(func(s *Place) bool { return s.left.Load() <= 0 })
	if s == nil {
		s = oldest(func(s *Place) bool { return !p.owner.WantedSoon(s.shard, false) })
	}
	if s == nil && u == budget.Demand {
		s = oldest(func(s *Place) bool { return !p.owner.WantedSoon(s.shard, true) })
	}
	if s == nil && u == budget.Demand {
		s = oldest(func(*Place) bool { return true })
	}
	return s
}

// Shrink drops all shards that are not in use, and makes the file shorter. The file grows again as
// soon as a shard is asked for, if the disk has room.
func (p *Spool) Shrink() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.waiting) > 0 {
		return
	}
	for _, s := range slices.Clone(p.order) {
		if s.whole && s.reading == 0 {
			s.keep = true
			p.drop(s)
		}
	}
	if err := p.shelf.Shorten(); err != nil {
		p.goroutines.Go(func() { p.o.Log.Warn("the spool keeps its room", "reason", err) }) // as Lost does
	}
}

// short reports whether the file is too short for any shard and can't be made longer. It is called
// with mu held.
func (p *Spool) short() bool { return !p.shelf.Lengthen() }

// drop removes a shard from the spool. Its room becomes free once it is not in use.
func (p *Spool) drop(s *Place) {
	delete(p.places, s.shard)
	p.order = slices.DeleteFunc(p.order, func(x *Place) bool { return x == s })
	s.dropped = true
	p.leaving += diskcache.RoomBytes(p.shards.DecodedBytes(s.shard))
	p.old[s.shard]++
	p.free(s)
}

// free frees the room of a dropped shard if it is neither read nor written any more. It is called
// whenever a read or the decoding ends.
func (p *Spool) free(s *Place) {
	if !s.dropped || s.reading > 0 || s.writing || s.decoded == nil {
		return
	}
	p.leaving -= diskcache.RoomBytes(p.shards.DecodedBytes(s.shard))
	if p.old[s.shard]--; p.old[s.shard] == 0 {
		delete(p.old, s.shard)
	}
	p.holdTables(-s.tableBytes())
	s.decoded.Leave(s.leaving())
	s.decoded = nil
}

// tableBytes returns the memory of a shard's tables.
func (s *Place) tableBytes() int64 { return int64(len(s.gone))*8 + s.decoded.TableBytes() }

// holdTables charges memory of tables, or returns it if bytes is negative.
func (p *Spool) holdTables(bytes int64) {
	p.tables += bytes
	p.budget.Charge(bytes)
}

// admitWaiting admits shards of waiting loads, in order, while there is room. It is called with mu
// held.
func (p *Spool) admitWaiting(n *News) {
	for len(p.waiting) > 0 && !p.closed {
		l := p.waiting[0]
		shard := l.Shard
		if p.losses.avoids(shard, p.now()) { // as of now, not when it began to wait
			p.waiting = p.waiting[1:]
			n.Without = append(n.Without, l)
			continue
		}
		if p.places[shard] == nil && p.admit(shard, budget.Demand) == nil {
			return
		}
		p.waiting = p.waiting[1:]
		switch p.ask(l, budget.Demand) {
		case There:
			n.There = append(n.There, l)
		case Aside:
			n.Without = append(n.Without, l)
		}
	}
}

// Admit must be called once the loads that Lost returned have been asked for again. It admits
// shards of other waiting loads.
func (p *Spool) Admit() (n News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitWaiting(&n)
	return n
}

// losses records the data that could not be read back from a spool as it was written, because the
// disk was full when the kernel wrote the pages, the disk failed, or someone else wrote to the
// files. Times are nanoseconds since a fixed but arbitrary moment. It is not safe for concurrent
// use.
type losses struct {
	pieces, shards uint64       // so far
	of             map[int]loss // by shard
	warned         int64        // when the last warning was, 0 before the first
}

// loss records that a shard was damaged in the spool.
type loss struct {
	times int
	until int64 // when it is forgotten
}

const (
	// Tries is how many times a shard is spooled before it is read without the spool. The second
	// try succeeds if the disk has lost only a few blocks.
	Tries = 2
	// lossNanos is how long a loss is remembered. A full disk may have room again later, but
	// finding out that it has none costs decoding the whole shard.
	lossNanos = int64(10 * time.Minute)
	// noPlaceNanos is how long a shard is read without the shelf after the shelf had no place for
	// it.
	noPlaceNanos = int64(30 * time.Second)
	// warnNanos is the least time between two warnings.
	warnNanos = int64(time.Minute)
)

// avoids reports whether a shard is currently read without the spool. Its pieces then come from
// decoders, each of which decodes the shard up to its piece. That is slow but correct.
func (l *losses) avoids(shard int, now int64) bool {
	x := l.of[shard]
	return x.times >= Tries && now < x.until
}

// add records that a shard was damaged, and reports whether to warn about it.
func (l *losses) add(shard int, now int64) (warn bool) {
	l.shards++
	x := l.of[shard]
	if now >= x.until {
		x.times = 0
	}
	if l.of == nil {
		l.of = map[int]loss{}
	}
	l.of[shard] = loss{x.times + 1, now + lossNanos}
	if warn = l.warned == 0 || now >= l.warned+warnNanos; warn {
		l.warned = now
	}
	return warn
}

// avoid makes avoids return true for a shard for noPlaceNanos, because the shelf has no place for
// it.
func (l *losses) avoid(shard int, now int64) {
	if l.of == nil {
		l.of = map[int]loss{}
	}
	l.of[shard] = loss{Tries, now + noPlaceNanos}
}
