package decode

import (
	"errors"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// startDecoding starts to decode queued shards, up to most at a time, and those that a reader
// waits for first. It is called with mu held.
func (p *Spool) startDecoding() {
	for len(p.queue) > 0 && p.running < p.most && !p.closed {
		i := max(0, slices.IndexFunc(p.queue, func(s *Place) bool { return slices.ContainsFunc(s.work, (*Load).Waited) }))
		s := p.queue[i]
		p.queue = slices.Delete(p.queue, i, i+1)
		p.running++
		s.writing = true
		p.goroutines.Add(1)
		go p.run(s)
	}
}

// run fills a shard's place, and reports to the owner what has become of its loads.
func (p *Spool) run(s *Place) {
	defer p.goroutines.Done()
	m := &p.o.Meter.Queued[meter.Decompress]
	m.Add(1)
	defer m.Add(-1)
	found, err := p.bring(s)

	var n News
	fails := false
	var failed []*Load
	p.mu.Lock()
	p.running--
	s.writing = false
	switch {
	case s.dropped: // its loads were returned by Lost
		p.free(s)
	case errors.Is(err, diskcache.ErrNotKept):
		p.losses.avoid(s.shard, p.now())
		p.drop(s)
		n.Without = s.work
		s.work = nil
	case err != nil:
		p.drop(s)
		fails, failed = true, s.work
		s.work = nil
	default:
		s.whole = true
		if found {
			p.found++
		} else {
			p.noteDecoded(s.shard)
		}
		p.came(s, p.shards.DecodedBytes(s.shard), &n)
	}
	p.startDecoding()
	p.admitWaiting(&n)
	p.mu.Unlock()
	if fails {
		p.owner.Failed(s.shard, failed, err)
	}
	p.owner.News(n)
}

// noteDecoded counts a shard that was decoded to its end. It is called with mu held.
func (p *Spool) noteDecoded(shard int) {
	p.decoded++
	w, bit := &p.ever[shard/64], uint64(1)<<(shard%64)
	if *w&bit != 0 {
		p.again++
	}
	*w |= bit
}

// bring fills a shard's place. If found is true, the shard was on the shelf's disk already, or
// another process has decoded it; else it was decoded here.
func (p *Spool) bring(s *Place) (found bool, err error) {
	state, err := p.openPlace(s)
	if err == nil && state == diskcache.Theirs {
		state, err = p.follow(s)
	}
	if err != nil || state == diskcache.Whole {
		return true, err
	}
	from := int64(0)
	err = p.decode(s.shard, &p.clocks[s.shard], &s.ledger, func(b []byte) error {
		// Earlier buffers can be read now: if a member ended within them, its checksum has been
		// verified.
		before := from
		from += int64(len(b))
		return p.write(s, b, before)
	})
	if err == nil {
		err = s.decoded.Finish()
	}
	return false, err
}

// openPlace opens a shard's place. If the shelf's disk has no room for it, less wanted shards are
// dropped, unless they are spooled only to be kept: then there was room for all of them, and what is
// kept is worth as much as what would take its place.
func (p *Spool) openPlace(s *Place) (diskcache.State, error) {
	for {
		state, err := s.decoded.Open()
		if !errors.Is(err, diskcache.ErrNotKept) {
			return state, err
		}
		p.mu.Lock()
		u := budget.Prefetch
		if slices.ContainsFunc(s.work, (*Load).Waited) {
			u = budget.Demand
		}
		var victim *Place
		if !p.o.Choice.Kept {
			victim = p.leastWanted(u)
		}
		if victim != nil && !p.closed && !s.dropped {
			p.drop(victim)
		}
		stop := victim == nil || p.closed || s.dropped
		p.mu.Unlock()
		if stop {
			return state, err
		}
	}
}

const (
	// followEvery and mostFollow are the least and most time between two looks at a shard that
	// another process decodes: about the time of one or two buffers.
	followEvery = 2 * time.Millisecond
	mostFollow  = 50 * time.Millisecond
	// followPatience is how long the other process may make no progress before the shard is
	// decoded here as well: it may have been stopped.
	followPatience = 2 * time.Second
)

// follow passes on loads while another process decodes the shard, until the shard is whole, or the
// other process has ended or makes no progress.
func (p *Spool) follow(s *Place) (diskcache.State, error) {
	seen, wait, idle := int64(0), followEvery, time.Duration(0)
	for {
		time.Sleep(wait)
		there, err := s.decoded.Look()
		if err != nil {
			return diskcache.Theirs, err
		}
		if there > seen {
			seen, wait, idle = there, followEvery, 0
		} else {
			idle += wait
			wait = min(2*wait, mostFollow)
		}
		var n News
		p.mu.Lock()
		closed, dropped := p.closed, s.dropped
		if !closed && !dropped && idle == 0 {
			p.came(s, there, &n)
		}
		p.mu.Unlock()
		switch {
		case closed:
			return diskcache.Theirs, budget.ErrClosed
		case dropped:
			return diskcache.Theirs, errDamaged
		}
		if n.Any() {
			p.owner.News(n)
		}
		if idle > 0 {
			if state, err := s.decoded.Claim(); err != nil || state != diskcache.Theirs {
				return state, err
			}
		}
		if idle >= followPatience {
			s.decoded.Restart()
			return diskcache.Ours, nil
		}
	}
}

// write writes the next bytes of a shard to its place, and passes on the loads that end within the
// first there bytes.
func (p *Spool) write(s *Place, b []byte, there int64) error {
	if err := s.decoded.Write(b); err != nil {
		return err
	}
	var n News
	p.mu.Lock()
	closed, dropped := p.closed, s.dropped
	if !closed && !dropped {
		p.came(s, there, &n)
	}
	p.mu.Unlock()
	switch {
	case closed:
		return budget.ErrClosed
	case dropped:
		return errDamaged
	}
	if n.Any() {
		p.owner.News(n)
	}
	return nil
}

// came adds the loads to n whose bytes are there, now that the first there bytes of the shard are.
// It is called with mu held.
func (p *Spool) came(s *Place, there int64, n *News) {
	now := p.now()
	s.there = max(s.there, there)
	p.clocks[s.shard].Store(now)
	for _, q := range p.queue {
		p.clocks[q.shard].Store(now)
	}
	for _, l := range p.waiting {
		p.clocks[l.Shard].Store(now)
	}
	left := s.work[:0]
	for _, l := range s.work {
		if l.Layout.End() > there {
			left = append(left, l)
			continue
		}
		s.lend(l)
		n.There = append(n.There, l)
	}
	clear(s.work[len(left):])
	s.work = left
}

// Read reads a load that Ask or News returned from its place to its memory, and then releases the
// place. It begins only if wanted returns true. done is called on another goroutine, without a lock;
// its error means that the bytes could not be read or differ from those written.
func (p *Spool) Read(l *Load, wanted func() bool, done func(error)) {
	p.goroutines.Add(1)
	p.o.Meter.Reading.Begin(1)
	s := l.Place
	s.decoded.Read(diskcache.Reading{Ranges: l.Layout.All(), Memory: l.Memory, Wanted: wanted, Done: func(err error) {
		p.o.Meter.Reading.End()
		if n := p.leave(s); n.Any() {
			p.owner.News(n)
		}
		done(err)
		p.goroutines.Done()
	}})
}

// Leave releases the place of a load that Ask or News returned, without reading it.
func (p *Spool) Leave(l *Load) News {
	s := l.Place
	l.Place = nil
	return p.leave(s)
}

// leave releases a place, and returns which loads can continue.
func (p *Spool) leave(s *Place) (n News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.reading--
	p.free(s)
	if s.reading == 0 {
		p.admitWaiting(&n)
	}
	return n
}

// Lost must be called when a load could not be read from its place, or differs from what was written
// there. It removes the shard from the spool and returns the loads that waited for it. The caller
// asks for all of them again, this one too, and then calls Admit. Lost logs a warning with the
// reason, at most once per minute and not after the spool was closed. It logs on a goroutine of its
// own, because the owner may hold its lock, and the log handler may be slow or ask for statistics.
func (p *Spool) Lost(l *Load, why error) (again []*Load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := l.Place
	l.Place = nil
	p.losses.pieces++
	if !s.damaged {
		s.damaged = true
		if warn := p.losses.add(s.shard, p.now()); warn && !p.closed {
			shards := p.losses.shards
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
