package fetch

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/spool"
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// spoolBlock is what a shard is decoded and written by.
const spoolBlock = 256 << 10

// startSpoolers decodes shards that have room, as many at a time as there is
// memory for: first those that a reader waits for. It is called with mu held.
func (f *Fetcher) startSpoolers() {
	p := f.spool
	for len(p.queue) > 0 && p.running < p.most && !f.closed {
		i := max(0, slices.IndexFunc(p.queue, func(s *spooled) bool {
			return slices.ContainsFunc(s.work, func(ld *load) bool { return ld.waiters > 0 })
		}))
		s := p.queue[i]
		p.queue = slices.Delete(p.queue, i, i+1)
		p.running++
		s.writing = true
		d := newDecoder(f, s.shard, f.index.Entry(s.shard, 0), spoolBlock)
		d.raw.got, d.raw.waits = &p.clocks[s.shard], &s.ledger
		d.running = true
		f.decoders.all[d] = struct{}{}
		f.holdDecoder(d, d.memory())
		f.running.Add(1)
		go f.runSpooler(s, d)
	}
}

func (f *Fetcher) runSpooler(s *spooled, d *decoder) {
	defer f.running.Done()
	f.meter.Queued[meter.Decompress].Add(1)
	defer f.meter.Queued[meter.Decompress].Add(-1)
	f.takeCore()
	defer f.giveCore()
	err := f.decodeShard(s, d)

	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.spool
	p.running--
	s.writing = false
	switch {
	case s.dropped: // what waited for it has gone elsewhere
		f.remove(d)
		f.freeSpooled(s)
	case err != nil:
		f.dropSpooled(s)
		d.work, s.work = s.work, nil
		f.fail(d, nil, err)
	default:
		f.remove(d)
		s.whole = true
		p.decoded++
		w, bit := &p.ever[s.shard/64], uint64(1)<<(s.shard%64)
		if *w&bit != 0 {
			p.again++
		}
		*w |= bit
		f.came(s, d.decoded)
	}
	f.startSpoolers()
	f.admitWaiting()
}

// decodeShard writes a shard to the spool. What was written can be read one
// block later: by then a member that ended with it has been found right.
func (f *Fetcher) decodeShard(s *spooled, d *decoder) error {
	if err := d.open(f); err != nil {
		return err
	}
	buf := make([]byte, min(spoolBlock, d.decoded))
	sums := spool.NewSummer(f.places, s.shard, s.sums)
	for d.pos < d.decoded {
		from := d.pos
		b := buf[:min(d.decoded-from, int64(len(buf)))]
		if err := d.fill(b); err != nil {
			return err
		}
		sums.Add(b)
		f.giveCore() // a disk may take its time
		err := f.spool.file.Write(s.runs, from, b)
		f.takeCore()
		if err != nil {
			return err
		}
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return errClosed
		}
		if s.dropped {
			f.mu.Unlock()
			return errDamaged
		}
		f.came(s, from)
		f.mu.Unlock()
	}
	return d.endMember()
}

// came starts the loads whose bytes are there now. It is called with mu held.
func (f *Fetcher) came(s *spooled, there int64) {
	p, now := f.spool, f.now()
	s.there = there
	p.clocks[s.shard].Store(now)
	for _, q := range p.queue {
		p.clocks[q.shard].Store(now)
	}
	for _, ld := range p.waiting {
		p.clocks[ld.shard].Store(now)
	}
	left := s.work[:0]
	for _, ld := range s.work {
		if ld.layout.end() > there {
			left = append(left, ld)
			continue
		}
		u := budget.Ahead
		if ld.waiters > 0 {
			u = budget.Demanded
		}
		if ld.seg, ld.off, ld.err = f.cache.alloc(ld.layout.size, u); ld.err != nil {
			f.finishLocked(ld)
			continue
		}
		f.readSpooled(s, ld)
	}
	clear(s.work[len(left):])
	s.work = left
}
