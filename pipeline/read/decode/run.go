package decode

import (
	"cmp"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// placeBefore returns the last offset, at or before the start of a load, where the decoder is now or
// where one of its loads will end. It is called with Set.mu held.
func (d *Decoder) placeBefore(l *Load) (int64, bool) {
	start, end := l.Layout.Start(), l.Layout.ReachBytes
	if d.at > start || d.asking && l.Piece < d.piece {
		return 0, false
	}
	p := d.at
	for _, x := range d.work {
		if reach := x.Layout.ReachBytes; reach <= start {
			p = max(p, reach)
		} else if x.Piece == l.Piece && x.Layout.Start() < end {
			return 0, false
		}
	}
	return p, true
}

// add inserts a load into the decoder's work. It is called with Set.mu held.
func (d *Decoder) add(l *Load) {
	i, _ := slices.BinarySearchFunc(d.work, l, func(x, l *Load) int {
		return cmp.Or(cmp.Compare(x.Piece, l.Piece), cmp.Compare(x.Layout.Start(), l.Layout.Start()))
	})
	d.work = slices.Insert(d.work, i, l)
	l.decoder = d
	d.serves(l)
}

// passOver reassigns the loads that begin before the offset that the decoder is moving to: they
// arrived while it asked the owner whether to keep a piece in passing. It is called with Set.mu
// held.
func (s *Set) passOver(d *Decoder) {
	var behind []*Load
	d.work = slices.DeleteFunc(d.work, func(x *Load) bool {
		if x.Layout.Start() >= d.at {
			return false
		}
		behind = append(behind, x)
		return true
	})
	for _, x := range behind {
		s.assign(x, budget.Demand)
	}
}

// TakeBack removes a load from its decoder, and reports whether it could: it returns false if the
// decoder has already started on it, or there is none.
func (s *Set) TakeBack(l *Load) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := l.decoder
	if d == nil {
		return false
	}
	i := slices.Index(d.work, l)
	if i < 0 {
		return false
	}
	d.work = slices.Delete(d.work, i, i+1)
	return true
}

// start makes a decoder that has loads run: on a goroutine, or in Step. It is called with mu held.
func (s *Set) start(d *Decoder) {
	if s.steps {
		d.turn = d.pos
		s.ready = append(s.ready, d)
		return
	}
	s.goroutines.Add(1)
	go s.run(d)
}

// run decodes the decoder's loads, one after the other, until there are no more.
func (s *Set) run(d *Decoder) {
	defer s.goroutines.Done()
	m := &s.o.Meter.Queued[meter.Decompress]
	m.Add(1)
	defer m.Add(-1)
	s.TakeCore()
	defer s.GiveCore()
	d.turn = d.pos
	for s.advance(d) {
		if d.turnEnds() {
			s.GiveCore()
			s.TakeCore()
			d.turn = d.pos
		}
	}
}

// Step opens a decoder of a dry run, or advances one by a piece, in the order in which they would
// take turns on all cores. It returns false if none has anything to do. In other runs, and if there
// is a spool, decoders run on goroutines, and it returns false.
func (s *Set) Step() bool {
	s.mu.Lock()
	if len(s.ready) == 0 {
		s.mu.Unlock()
		return false
	}
	d := s.ready[0]
	s.ready = s.ready[1:]
	s.mu.Unlock()
	s.TakeCore()
	opens, step := d.dec == nil, s.advance
	if opens {
		step = s.prepare // a real one would wait for storage here, and leave its core to the next one
	}
	more := step(d)
	s.GiveCore()
	if !more {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	after := min(cap(s.cores)-1, len(s.ready)) // those that have the other cores
	if opens || d.turnEnds() {
		after, d.turn = len(s.ready), d.pos
	}
	s.ready = slices.Insert(s.ready, after, d)
	return true
}

// prepare opens a decoder of a dry run, and returns false if it fails.
func (s *Set) prepare(d *Decoder) bool {
	if err := d.open(); err != nil {
		s.fail(d, nil, err)
		return false
	}
	s.makeRoom(d)
	return true
}

// advance decodes the decoder's next load, or skips towards it. It returns false once the decoder
// has paused or failed.
func (s *Set) advance(d *Decoder) bool {
	l, to, more := s.next(d)
	if !more {
		return false
	}
	s.complain(d)
	err := d.open()
	if err == nil && l != nil {
		err = d.bring(l)
	} else if err == nil {
		err = d.skip(to)
	}
	if err != nil {
		s.fail(d, l, err)
		return false
	}
	if l != nil {
		s.mu.Lock()
		s.hold(d, d.memory())
		s.mu.Unlock()
		s.owner.Came(l)
	}
	return true
}

// turnEnds reports whether the decoder has to release its core to others: between two pieces, after
// a turn of twice the bytes that it holds, because its window has to be loaded into the core's cache
// again in every turn. With turns of one piece each, seven decoders with windows of 8 MiB took twice
// the time.
func (d *Decoder) turnEnds() bool { return d.pos-d.turn >= min(2*d.memory(), maxTurnBytes) }

// next decides what the decoder does next: decode the load l, whose memory is then allocated, or
// skip unneeded bytes up to the offset to. If more is false, the decoder has paused or the set is
// closed.
func (s *Set) next(d *Decoder) (l *Load, to int64, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if came := d.pos - int64(len(d.tail)); came > d.at && !s.closed {
		// After its last load the decoder has moved on to the end of a member or to a point. There
		// may be other loads of the piece before that offset.
		d.at = came
		s.passOver(d)
	}
	for !s.closed {
		if len(d.work) == 0 {
			l, to := s.sweepOn(d)
			if l != nil || to > d.pos {
				d.at = to
				s.passOver(d)
				return l, to, true
			} else if len(d.work) == 0 && !s.closed {
				s.pause(d)
				return nil, 0, false
			}
			continue
		}
		if l = d.work[0]; l.Piece > d.piece {
			passing := s.keepInPassing(d)
			if passing != nil {
				d.at = passing.Layout.ReachBytes
				s.passOver(d)
				return passing, d.at, true
			}
			if len(d.work) == 0 || d.work[0].Piece <= d.piece {
				continue // a load arrived after the decision not to keep the piece
			}
			// Skip piece by piece, so that loads in between can still be assigned to it.
			d.piece++
			if to := s.places.StartBytes(d.piece); to > d.pos {
				s.notePassed(d, to-d.pos)
				d.at = to
				return nil, to, true
			}
			continue
		}
		d.work = d.work[1:]
		d.piece = l.Piece + 1
		at := d.at
		d.at = l.Layout.ReachBytes
		s.mu.Unlock()
		room := s.owner.Room(l)
		s.mu.Lock()
		if room {
			return l, d.at, true
		}
		d.at = at
	}
	loads := s.end(d)
	s.mu.Unlock()
	s.owner.Failed(d.shard, loads, budget.ErrClosed)
	s.mu.Lock()
	return nil, 0, false
}

// sweepOn is next for a decoder without loads: while there is memory, the decoder may move on to a
// piece that is needed and not in memory. Otherwise sweepOn returns the current offset. It releases
// mu temporarily.
func (s *Set) sweepOn(d *Decoder) (*Load, int64) {
	s.mu.Unlock()
	piece := s.owner.Next(d.shard, d.piece)
	s.mu.Lock()
	if piece < 0 || len(d.work) > 0 || s.closed {
		return nil, d.pos
	}
	passed := piece > d.piece
	d.piece = piece
	if to := s.places.StartBytes(piece); passed && to > d.pos {
		s.notePassed(d, to-d.pos)
		return nil, to
	}
	if passing := s.keepInPassing(d); passing != nil {
		return passing, passing.Layout.ReachBytes
	}
	return nil, d.pos
}

// keepInPassing returns a load for the next piece, or nil if the piece is not worth keeping. It
// releases mu temporarily: loads may arrive meanwhile, but none of an earlier piece, nor can
// there be another load of this piece if it is kept.
func (s *Set) keepInPassing(d *Decoder) *Load {
	d.asking = true
	s.mu.Unlock()
	l := s.owner.Passing(d.piece)
	s.mu.Lock()
	d.asking = false
	if l != nil {
		d.piece++
		d.serves(l)
	}
	return l
}

// fail ends a decoder and fails all its loads. l is the load that it was decoding, or nil.
func (s *Set) fail(d *Decoder, l *Load, err error) {
	s.mu.Lock()
	loads := s.end(d)
	s.mu.Unlock()
	if l != nil {
		loads = append([]*Load{l}, loads...)
	}
	s.owner.Failed(d.shard, loads, err)
}

// end removes a decoder and returns its remaining loads.
func (s *Set) end(d *Decoder) []*Load {
	loads := d.work
	d.work = nil
	d.running = false
	s.remove(d)
	return loads
}
