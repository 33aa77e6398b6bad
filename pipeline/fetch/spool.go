package fetch

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/uring"
)

// spool keeps compressed shards decoded, in a file: each is decoded once, from
// front to back, and its pieces are then read from there. Everything but what
// is atomic is guarded by Fetcher.mu.
type spool struct {
	file    *spoolFile
	engine  uring.Engine
	shards  map[int]*spooled
	order   []*spooled     // of shards, the oldest first
	waiting []*load        // for whose shards there is no room
	queue   []*spooled     // that have room, and are not yet decoded
	running int            // shards that are decoded now
	most    int            // of running
	clocks  []atomic.Int64 // of each shard: Fetcher.now when it, or what it waits for, last got on
	ever    []uint64       // a bit a shard
	refused int64          // Fetcher.now when there was no room
	leaving int64          // bytes of shards that were dropped and are read or written still
	decoded uint64         // shards that were decoded to their end
	again   uint64         // of these, those that had been before
	tables  int64          // bytes of memory, of shards in the spool
	losses  losses
}

// spooled is a shard in the spool, or on its way there.
type spooled struct {
	shard   int
	runs    []run
	there   int64 // so many bytes can be read
	whole   bool
	writing bool         // its decoder is at work
	dropped bool         // it is in no list any more, and its room is free once nobody uses it
	damaged bool         // it did not come back as it was written
	reading int          // loads that are reading from it
	work    []*load      // that wait for bytes to come
	ledger  meter.Ledger // of its decoder's waits for storage

	// The checksums of its blocks. Those before there are not changed any more.
	sums []uint64

	// A bit a record, and how many of the part are not set: what has gone out
	// since the shard came, or since all of it had.
	gone []atomic.Uint64
	left atomic.Int64
}

// refusalNanos is for how long nobody looks for room again to read ahead: to
// look costs time, with a lock.
const refusalNanos = 1e6

func newSpool(f *Fetcher, file *spoolFile) *spool {
	return &spool{
		file: file, engine: f.config.Spool.Engine, shards: map[int]*spooled{},
		most:   int(min(max(f.limits.decoder/decoderBytes, 1), int64(f.config.Decoders))),
		losses: losses{of: map[int]loss{}},
		clocks: make([]atomic.Int64, f.index.Shards()), ever: make([]uint64, (f.index.Shards()+63)/64),
	}
}

// spools says whether a shard is of those that are read through the spool, as far
// as that works: see avoids.
func (f *Fetcher) spools(shard int) bool {
	return f.spool != nil && f.choice.spools(shard)
}

// goneOut notes that the shard's record has gone out.
func (s *spooled) goneOut(ordinal uint64) {
	w, bit := &s.gone[ordinal/64], uint64(1)<<(ordinal%64)
	if w.Load()&bit == 0 && w.Or(bit)&bit == 0 {
		s.left.Add(-1)
	}
}

// renew makes all records wanted again.
func (s *spooled) renew(records uint64) {
	for i := range s.gone {
		s.gone[i].Store(0)
	}
	s.left.Store(int64(records))
}

// assignSpool lets a load be read from the spool as soon as its bytes are
// there. false means that there is no room to read ahead.
func (f *Fetcher) assignSpool(ld *load, u budget.Urgency) bool {
	p := f.spool
	ld.clock = &p.clocks[ld.shard]
	s := p.shards[ld.shard]
	if s == nil {
		if s = f.admit(ld.shard, u); s == nil {
			if u == budget.Demanded {
				p.clocks[ld.shard].Store(f.now())
				ld.via = new(meter.Ledger) // it waits for others to be decoded and used
				p.waiting = append(p.waiting, ld)
			}
			return u == budget.Demanded
		}
	}
	if s.whole && s.left.Load() <= 0 {
		s.renew(f.recordsOf(f.index.Shard(s.shard))) // the next epoch has come to it
	}
	if s.there < ld.layout.end() {
		ld.via = &s.ledger
		s.work = append(s.work, ld)
		return true
	}
	if ld.seg, ld.off, ld.err = f.cache.alloc(ld.layout.size, u); ld.err == budget.ErrNoRoom {
		return false
	}
	f.readSpooled(s, ld)
	return true
}

// admit finds room for a shard and has it decoded. nil means that there is none
// now: in use is what is decoded, and what is being read.
func (f *Fetcher) admit(shard int, u budget.Urgency) *spooled {
	p, x := f.spool, f.index.Shard(shard)
	runs, ok := p.file.take(x.DecodedBytes)
	if !ok && u != budget.Demanded && p.refused > 0 && f.now() < p.refused+refusalNanos {
		return nil
	}
	for !ok {
		if p.leaving >= spoolRound(x.DecodedBytes) {
			return nil // its room comes soon: no other shard has to be decoded again for it
		}
		victim := f.leastWanted(u)
		if victim == nil {
			p.refused = f.now()
			return nil
		}
		f.dropSpooled(victim)
		runs, ok = p.file.take(x.DecodedBytes)
	}
	s := &spooled{shard: shard, runs: runs, gone: make([]atomic.Uint64, (x.Records+63)/64), sums: make([]uint64, f.blocks(shard))}
	s.left.Store(int64(f.recordsOf(x)))
	f.holdTables(s.tableBytes())
	p.shards[shard] = s
	p.order = append(p.order, s)
	p.queue = append(p.queue, s)
	p.clocks[shard].Store(f.now())
	f.startSpoolers()
	return s
}

// leastWanted is the shard that is best dropped: the oldest of which all has
// gone out; else the oldest that no reader will come to soon; else, for a
// reader that waits, the oldest of which memory has all that they will come to,
// and then the oldest.
func (f *Fetcher) leastWanted(u budget.Urgency) *spooled {
	oldest := func(good func(s *spooled) bool) *spooled {
		for _, s := range f.spool.order {
			if s.whole && s.reading == 0 && good(s) {
				return s
			}
		}
		return nil
	}
	s := oldest(func(s *spooled) bool { return s.left.Load() <= 0 })
	if s == nil {
		s = oldest(func(s *spooled) bool { return !f.wantedSoon(s.shard, false) })
	}
	if s == nil && u == budget.Demanded {
		s = oldest(func(s *spooled) bool { return !f.wantedSoon(s.shard, true) })
	}
	if s == nil && u == budget.Demanded {
		s = oldest(func(*spooled) bool { return true })
	}
	return s
}

// wantedSoon says whether a reader will come to the shard soon, or, with
// missing, to a piece of it that is not in memory.
func (f *Fetcher) wantedSoon(shard int, missing bool) bool {
	x := f.index.Shard(shard)
	for piece := f.pieces.of(x.First); piece < f.pieces.len() && f.pieces.starts[piece] < x.First+x.Records; piece++ {
		if f.wanted[piece].Load() > 0 && !(missing && f.slots.at(piece) != nil) {
			return true
		}
	}
	return false
}

// dropSpooled forgets a shard.
func (f *Fetcher) dropSpooled(s *spooled) {
	p := f.spool
	delete(p.shards, s.shard)
	p.order = slices.DeleteFunc(p.order, func(x *spooled) bool { return x == s })
	s.dropped = true
	p.leaving += spoolRound(f.index.Shard(s.shard).DecodedBytes)
	f.freeSpooled(s)
}

// freeSpooled frees the room of a shard that was dropped, once nobody reads or writes
// there any more. It is called whenever one of these ends.
func (f *Fetcher) freeSpooled(s *spooled) {
	if !s.dropped || s.reading > 0 || s.writing || s.runs == nil {
		return
	}
	f.spool.file.give(s.runs)
	s.runs = nil
	f.spool.leaving -= spoolRound(f.index.Shard(s.shard).DecodedBytes)
	f.holdTables(-s.tableBytes())
}

// tableBytes is the memory of what there is for a shard in the spool.
func (s *spooled) tableBytes() int64 { return int64(len(s.gone)+len(s.sums)) * 8 }

// holdTables notes that so much more memory is held; segments make room for it.
func (f *Fetcher) holdTables(bytes int64) {
	f.spool.tables += bytes
	f.makeBudget()
	f.cache.shrink()
}

// admitWaiting is called when there may be room in the spool.
func (f *Fetcher) admitWaiting() {
	p := f.spool
	for len(p.waiting) > 0 && !f.closed {
		ld := p.waiting[0]
		if f.avoids(ld.shard) { // since it began to wait
			p.waiting = p.waiting[1:]
			f.assign(ld, budget.Demanded)
			continue
		}
		if p.shards[ld.shard] == nil && f.admit(ld.shard, budget.Demanded) == nil {
			return
		}
		p.waiting = p.waiting[1:]
		f.assignSpool(ld, budget.Demanded)
		if ld.err != nil {
			f.finishLocked(ld)
		}
	}
}

// readSpooled reads a load, whose memory is there, from the spool. Where there
// was no memory, ld.err says so, and the caller ends the load.
func (f *Fetcher) readSpooled(s *spooled, ld *load) {
	if ld.err != nil {
		return
	}
	s.reading++
	ld.spooled = s
	var batch []*uring.Request
	to := ld.off
	ld.pending.Store(1) // for this function
	for _, r := range ld.layout.ranges {
		_ = eachPart(s.runs, r.off, r.size, func(at, n int64) error {
			b := ld.seg.Bytes[to : to+n : to+n]
			to += n
			ld.pending.Add(1)
			ld.stage.Store(isQueued)
			batch = append(batch, &uring.Request{FD: int(f.spool.file.file.Fd()), OffsetBytes: at, Buf: b, Wanted: ld.begin, Done: func(n int, err error) {
				f.meter.Reading.End()
				if err == nil && n < len(b) {
					err = fmt.Errorf("it ends after %d of %d bytes", n, len(b))
				}
				if err != nil {
					err = fmt.Errorf("read the spool in %s: %w", f.spool.file.dir, err)
					ld.failed.CompareAndSwap(nil, &err)
				}
				f.spoolRead(s, ld)
			}})
			return nil
		})
	}
	f.running.Add(1)
	if len(batch) > 0 {
		f.meter.Reading.Begin(len(batch))
		f.spool.engine.Submit(batch)
	}
	if ld.pending.Add(-1) == 0 {
		// Nothing to read, or read already. The caller has the lock.
		go f.spoolArrived(s, ld)
	}
}

func (f *Fetcher) spoolRead(s *spooled, ld *load) {
	if ld.pending.Add(-1) == 0 {
		f.spoolArrived(s, ld)
	}
}

func (f *Fetcher) spoolArrived(s *spooled, ld *load) {
	f.mu.Lock()
	s.reading--
	f.freeSpooled(s)
	if s.reading == 0 {
		f.admitWaiting()
	}
	f.mu.Unlock()
	f.arrived(ld)
}

// closeSpool ends what nobody brings any more, and frees the file. It is called
// with mu held when nothing runs.
func (f *Fetcher) closeSpool() error {
	p := f.spool
	if p == nil {
		return nil
	}
	left := p.waiting
	for _, s := range p.order {
		left = append(left, s.work...)
	}
	for _, ld := range left {
		ld.err = errClosed
		f.finishLocked(ld)
	}
	p.waiting, p.queue, p.order, p.shards = nil, nil, nil, map[int]*spooled{}
	return p.file.file.Close()
}
