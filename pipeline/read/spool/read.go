package spool

import "github.com/lsiofs/lsiofs/pipeline/diskcache"

// Read reads from a place that Ask or News gave for a load, and gives the place back. Done
// is called on another goroutine, without a lock. Its error tells that bytes could not be
// read, or are not as they were written.
func (p *Spool) Read(s *Place, r diskcache.Reading) {
	done := r.Done
	r.Done = func(err error) {
		p.c.Meter.Reading.End()
		p.leave(s)
		done(err)
		p.goroutines.Done()
	}
	p.goroutines.Add(1)
	p.c.Meter.Reading.Begin(1)
	s.decoded.Read(r)
}

// leave gives a place back that was read, and tells the owner who comes now.
func (p *Spool) leave(s *Place) {
	if n := p.Leave(s); n.Any() {
		p.owner.News(n)
	}
}

// Leave gives a place back that Ask or News gave, and that is not read.
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

// Lost is called when a load was read from a place and is not what was written
// there, or could not be read. The shard leaves the spool, and loads that waited for
// it are to be asked for again; then Admit is called. It warns, with the reason, but
// not too often, and not once it was told to stop: on a goroutine of its own, as the
// owner may hold its lock, and whoever is told may take his time, or ask for statistics.
func (p *Spool) Lost(s *Place, why error) (again []Load) {
	p.mu.Lock()
	p.losses.Pieces++
	defer p.mu.Unlock()
	if !s.damaged {
		s.damaged = true
		if warn := p.losses.Add(s.shard, p.c.Now()); warn && !p.closed {
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

// warn says that a shard was lost, of so many so far.
func (p *Spool) warn(shard int, shards uint64, why error) {
	p.c.Log.Warn("the spool can't be read back, or gives other bytes than were written; what is damaged is decoded again, which is right but slower: look at the disk of the spool and its free space, or mount with another --spool-dir",
		"spool", p.shelf.Dir(), "shard", p.c.Shards.Path(shard), "reason", why, "shards_damaged", shards)
}
