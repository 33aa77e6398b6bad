package spool

import (
	"slices"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// admit finds room for a shard and has it decoded. nil means that there is none
// now: in use is what is decoded, and what is being read.
func (p *Spool) admit(shard int, u budget.Urgency) *Place {
	size := p.c.Shards.DecodedBytes(shard)
	decoded, ok := p.shelf.Take(shard, size)
	if !ok && u != budget.Demand && p.refused > 0 && p.c.Now() < p.refused+refusalNanos {
		return nil
	}
	for !ok {
		if p.leaving >= diskcache.RoomBytes(size) {
			return nil // its room comes soon: no other shard has to be decoded again for it
		}
		victim := p.leastWanted(u)
		if victim == nil {
			p.refused = p.c.Now()
			return nil
		}
		victim.keep = p.shelf.Crowded()
		p.drop(victim)
		decoded, ok = p.shelf.Take(shard, size)
	}
	records, wanted := p.c.Shards.Records(shard)
	s := &Place{shard: shard, decoded: decoded, gone: make([]atomic.Uint64, (records+63)/64)}
	s.left.Store(int64(wanted))
	p.holdTables(s.tableBytes())
	p.places[shard] = s
	p.order = append(p.order, s)
	p.queue = append(p.queue, s)
	p.clocks[shard].Store(p.c.Now())
	p.startDecoding()
	return s
}

// leastWanted is the shard that is best dropped: the oldest of which all has
// gone out; else the oldest that no reader will come to soon; else, for a
// reader that waits, the oldest of which memory has all that they will come to,
// and then the oldest.
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

// Shrink drops the shards that nobody reads or waits for, and makes the file shorter. It is
// as long again as soon as a shard is asked for, if the disk has room.
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
		p.c.Log.Warn("the spool keeps its room", "reason", err)
	}
}

// short says that the file is too short for any shard, and can't be made longer. It is
// called with mu held.
func (p *Spool) short() bool { return !p.shelf.Lengthen() }

// drop forgets a shard.
func (p *Spool) drop(s *Place) {
	delete(p.places, s.shard)
	p.order = slices.DeleteFunc(p.order, func(x *Place) bool { return x == s })
	s.dropped = true
	p.leaving += diskcache.RoomBytes(p.c.Shards.DecodedBytes(s.shard))
	p.free(s)
}

// free frees the room of a shard that was dropped, once nobody reads or writes
// there any more. It is called whenever one of these ends.
func (p *Spool) free(s *Place) {
	if !s.dropped || s.reading > 0 || s.writing || s.decoded == nil {
		return
	}
	p.leaving -= diskcache.RoomBytes(p.c.Shards.DecodedBytes(s.shard))
	p.holdTables(-s.tableBytes())
	s.decoded.Leave(s.leaving())
	s.decoded = nil
}

// tableBytes is the memory of what there is for a shard in the spool.
func (s *Place) tableBytes() int64 { return int64(len(s.gone))*8 + s.decoded.TableBytes() }

// holdTables notes that so much more memory is held.
func (p *Spool) holdTables(bytes int64) {
	p.tables += bytes
	p.c.Charge(bytes)
}

// admitWaiting is called when there may be room in the spool.
func (p *Spool) admitWaiting(n *News) {
	for len(p.waiting) > 0 && !p.closed {
		l := p.waiting[0]
		shard := l.Shard()
		if p.losses.Avoids(shard, p.c.Now()) { // since it began to wait
			p.waiting = p.waiting[1:]
			n.Without = append(n.Without, l)
			continue
		}
		if p.places[shard] == nil && p.admit(shard, budget.Demand) == nil {
			return
		}
		p.waiting = p.waiting[1:]
		if a, s, _ := p.ask(l, budget.Demand); a == There {
			n.There = append(n.There, Arrival{l, s})
		}
	}
}

// Admit is called when loads that were lost have been asked for again: then others
// come.
func (p *Spool) Admit() (n News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admitWaiting(&n)
	return n
}
