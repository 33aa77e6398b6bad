package spool

import (
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/uring"
)

// Reading is what is read from a place.
type Reading struct {
	Ranges iter.Seq2[int64, int64] // offsets and sizes in the decoded shard
	Memory []byte                  // where they go, one behind the other
	Wanted func() bool             // is asked before each read begins; may be nil
	Done   func(error)             // is called once, when no read is under way any more
}

// Read reads from a place that Ask or News gave for a load, and gives it back. Done is
// called on another goroutine, without a lock.
func (p *Spool) Read(s *Place, r Reading) {
	var batch []*uring.Request
	var failed atomic.Pointer[error]
	var pending atomic.Int64
	ended := func() {
		p.leave(s)
		var err error
		if e := failed.Load(); e != nil {
			err = *e
		}
		r.Done(err)
		p.goroutines.Done()
	}
	p.goroutines.Add(1)
	pending.Store(1) // for this function
	to := int64(0)
	for off, size := range r.Ranges {
		_ = EachPart(s.runs, off, size, func(at, n int64) error {
			b := r.Memory[to : to+n : to+n]
			to += n
			pending.Add(1)
			batch = append(batch, &uring.Request{FD: int(p.file.Device.Fd()), OffsetBytes: at, Buf: b, Wanted: r.Wanted, Done: func(n int, err error) {
				p.c.Meter.Reading.End()
				if err == nil && n < len(b) {
					err = fmt.Errorf("it ends after %d of %d bytes", n, len(b))
				}
				if err != nil {
					err = fmt.Errorf("read the spool in %s: %w", p.file.Dir, err)
					failed.CompareAndSwap(nil, &err)
				}
				if pending.Add(-1) == 0 {
					ended()
				}
			}})
			return nil
		})
	}
	if len(batch) > 0 {
		p.c.Meter.Reading.Begin(len(batch))
		p.c.Engine.Submit(batch)
	}
	if pending.Add(-1) == 0 {
		go ended() // nothing to read, or read already: the caller may have a lock
	}
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

// Compare says whether what was read of a piece from a place is what was written
// there.
func (p *Spool) Compare(s *Place, piece int, ranges iter.Seq2[int64, int64], mem []byte) error {
	return Compare(p.c.Shards, s.shard, piece, s.sums, ranges, mem)
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
		"spool", p.file.Dir, "shard", p.c.Shards.Path(shard), "reason", why, "shards_damaged", shards)
}
