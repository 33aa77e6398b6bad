package spool

import "github.com/lsiofs/lsiofs/pipeline/diskcache"

// Read reads from a place that Ask or News returned for a load, and releases the place. r.Done is
// called on another goroutine, without a lock. Its error means that the bytes could not be read or
// differ from those written.
func (p *Spool) Read(s *Place, r diskcache.Reading) {
	done := r.Done
	r.Done = func(err error) {
		p.o.Meter.Reading.End()
		p.leave(s)
		done(err)
		p.goroutines.Done()
	}
	p.goroutines.Add(1)
	p.o.Meter.Reading.Begin(1)
	s.decoded.Read(r)
}

// leave releases a place that was read, and passes the resulting News to the owner.
func (p *Spool) leave(s *Place) {
	if n := p.Leave(s); n.Any() {
		p.owner.News(n)
	}
}

// Leave releases a place that Ask or News returned, without reading it.
func (p *Spool) Leave(s *Place) (n News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.reading--
	p.free(s)
	if s.reading == 0 {
		p.admitWaiting(&n)
	}
	return n
}

// Lost must be called when a load could not be read from a place, or differs from what was written
// there. It removes the shard from the spool and returns the loads that waited for it. The caller
// asks for these again and then calls Admit. Lost logs a warning with the reason, at most once per
// minute and not after the spool was closed. It logs on a goroutine of its own, because the owner
// may hold its lock, and the log handler may be slow or ask for statistics.
func (p *Spool) Lost(s *Place, why error) (again []Load) {
	p.mu.Lock()
	p.losses.Pieces++
	defer p.mu.Unlock()
	if !s.damaged {
		s.damaged = true
		if warn := p.losses.Add(s.shard, p.now()); warn && !p.closed {
			shards := p.losses.Shards
			p.goroutines.Go(func() { p.warn(s.shard, shards, why) })
		}
	}
	if !s.dropped {
		p.drop(s)
		again, s.work = s.work, nil
	}
	return again
}

// warn logs that a shard was lost; shards is the number lost so far.
func (p *Spool) warn(shard int, shards uint64, why error) {
	p.o.Log.Warn("the spool can't be read back, or gives other bytes than were written; what is damaged is decoded again, which is right but slower: look at the disk of the spool and its free space, or mount with another --spool-dir",
		"spool", p.shelf.Dir(), "shard", p.shards.Path(shard), "reason", why, "shards_damaged", shards)
}
