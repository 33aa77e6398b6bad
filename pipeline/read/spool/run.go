package spool

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// bufferBytes is what a shard is decoded and written by.
const bufferBytes = 256 << 10

// startDecoding decodes shards that have room, as many at a time as there is
// memory for: first those that a reader waits for. It is called with mu held.
func (p *Spool) startDecoding() {
	for len(p.queue) > 0 && p.running < p.c.Most && !p.closed {
		i := max(0, slices.IndexFunc(p.queue, func(s *Place) bool { return slices.ContainsFunc(s.work, Load.Waited) }))
		s := p.queue[i]
		p.queue = slices.Delete(p.queue, i, i+1)
		p.running++
		s.writing = true
		p.goroutines.Add(1)
		go p.run(s)
	}
}

// run decodes a shard, and tells what has come of it.
func (p *Spool) run(s *Place) {
	defer p.goroutines.Done()
	m := &p.c.Meter.Queued[meter.Decompress]
	m.Add(1)
	defer m.Add(-1)
	x := p.c.Decoders
	d := x.Whole(s.shard, bufferBytes, &p.clocks[s.shard], &s.ledger)
	x.TakeCore()
	err := p.decode(s, d)
	x.GiveCore()
	x.End(d)

	var n News
	p.mu.Lock()
	p.running--
	s.writing = false
	switch {
	case s.dropped: // what waited for it has gone elsewhere
		p.free(s)
	case err != nil:
		p.drop(s)
		n.Failed, n.Err, n.Shard = s.work, err, s.shard
		s.work = nil
	default:
		s.whole = true
		p.decoded++
		w, bit := &p.ever[s.shard/64], uint64(1)<<(s.shard%64)
		if *w&bit != 0 {
			p.again++
		}
		*w |= bit
		p.came(s, p.c.Shards.DecodedBytes(s.shard), &n)
	}
	p.startDecoding()
	p.admitWaiting(&n)
	p.mu.Unlock()
	p.owner.News(n)
}

// decode writes a shard to its place. What was written can be read one
// block later: by then a member that ended with it has been found right.
func (p *Spool) decode(s *Place, d Decoder) error {
	size := p.c.Shards.DecodedBytes(s.shard)
	buf := make([]byte, min(bufferBytes, size))
	for d.Pos() < size {
		from := d.Pos()
		b := buf[:min(size-from, int64(len(buf)))]
		if err := d.Fill(b); err != nil {
			return err
		}
		p.c.Decoders.GiveCore() // a disk may take its time
		err := s.decoded.Write(b)
		p.c.Decoders.TakeCore()
		if err != nil {
			return err
		}
		var n News
		p.mu.Lock()
		closed, dropped := p.closed, s.dropped
		if !closed && !dropped {
			p.came(s, from, &n)
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
	}
	if err := d.EndMember(); err != nil {
		return err
	}
	return s.decoded.Finish()
}

// came collects the loads whose bytes are there now. It is called with mu held.
func (p *Spool) came(s *Place, there int64, n *News) {
	now := p.c.Now()
	s.there = there
	p.clocks[s.shard].Store(now)
	for _, q := range p.queue {
		p.clocks[q.shard].Store(now)
	}
	for _, l := range p.waiting {
		p.clocks[l.Shard()].Store(now)
	}
	left := s.work[:0]
	for _, l := range s.work {
		if _, end, _ := l.Bounds(); end > there {
			left = append(left, l)
			continue
		}
		s.reading++
		n.There = append(n.There, Arrival{l, s})
	}
	clear(s.work[len(left):])
	s.work = left
}
