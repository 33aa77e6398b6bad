package fetch

import (
	"errors"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/decode"
	"github.com/lsiofs/lsiofs/pipeline/fetch/spool"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
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
		d := f.decoders.Whole(s.shard, spoolBlock, &p.clocks[s.shard], &s.ledger)
		f.running.Add(1)
		go f.runSpooler(s, d)
	}
}

func (f *Fetcher) runSpooler(s *spooled, d *decode.Decoder) {
	defer f.running.Done()
	f.meter.Queued[meter.Decompress].Add(1)
	defer f.meter.Queued[meter.Decompress].Add(-1)
	f.decoders.TakeCore()
	defer f.decoders.GiveCore()
	err := f.decodeShard(s, d)

	f.mu.Lock()
	defer f.mu.Unlock()
	p, decoded := f.spool, f.index.Shard(s.shard).DecodedBytes
	p.running--
	s.writing = false
	f.decoders.End(d)
	switch {
	case s.dropped: // what waited for it has gone elsewhere
		f.freeSpooled(s)
	case err != nil:
		f.dropSpooled(s)
		if _, ok := errors.AsType[*unpack.CorruptError](err); ok {
			f.breakShard(s.shard, err)
		}
		for _, ld := range s.work {
			ld.err = err
			f.finishLocked(ld)
		}
		s.work = nil
	default:
		s.whole = true
		p.decoded++
		w, bit := &p.ever[s.shard/64], uint64(1)<<(s.shard%64)
		if *w&bit != 0 {
			p.again++
		}
		*w |= bit
		f.came(s, decoded)
	}
	f.startSpoolers()
	f.admitWaiting()
}

// decodeShard writes a shard to the spool. What was written can be read one
// block later: by then a member that ended with it has been found right.
func (f *Fetcher) decodeShard(s *spooled, d *decode.Decoder) error {
	decoded := f.index.Shard(s.shard).DecodedBytes
	buf := make([]byte, min(spoolBlock, decoded))
	sums := spool.NewSummer(f.places, s.shard, s.sums)
	for d.Pos() < decoded {
		from := d.Pos()
		b := buf[:min(decoded-from, int64(len(buf)))]
		if err := d.Fill(b); err != nil {
			return err
		}
		sums.Add(b)
		f.decoders.GiveCore() // a disk may take its time
		err := f.spool.file.Write(s.runs, from, b)
		f.decoders.TakeCore()
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
	return d.EndMember()
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
