package decode

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// placeBefore is the last place at or before where a load begins where the decoder
// stands or will pass with something to bring. Of one piece there may be several loads, of
// records of different parts: it brings those of them that lie one behind the other. It is called
// with Set.mu held.
func (d *Decoder) placeBefore(l Load) (int64, bool) {
	start, _, end := l.Bounds()
	if d.at > start || d.asking && l.Piece() < d.piece {
		return 0, false
	}
	p := d.at
	for _, x := range d.work {
		from, _, reach := x.Bounds()
		if reach <= start {
			p = max(p, reach)
		} else if x.Piece() == l.Piece() && from < end {
			return 0, false
		}
	}
	return p, true
}

// add gives it a load. It is called with Set.mu held.
func (d *Decoder) add(l Load) {
	i, _ := slices.BinarySearchFunc(d.work, l, func(x, l Load) int {
		from, _, _ := x.Bounds()
		start, _, _ := l.Bounds()
		return cmp.Or(cmp.Compare(x.Piece(), l.Piece()), cmp.Compare(from, start))
	})
	d.work = slices.Insert(d.work, i, l)
}

// passOver gives loads away that begin before where the decoder is going to be: of another part
// of the piece that it keeps in passing, which came while it asked. It is called with Set.mu held.
func (s *Set) passOver(d *Decoder) {
	var behind []Load
	d.work = slices.DeleteFunc(d.work, func(x Load) bool {
		start, _, _ := x.Bounds()
		if start < d.at {
			behind = append(behind, x)
		}
		return start < d.at
	})
	for _, x := range behind {
		s.assign(d.shard, x, budget.Demand)
	}
}

// TakeBack says whether a load could be taken back: the decoder has not come to it.
func (d *Decoder) TakeBack(l Load) bool {
	d.set.mu.Lock()
	defer d.set.mu.Unlock()
	i := slices.Index(d.work, l)
	if i < 0 {
		return false
	}
	d.work = slices.Delete(d.work, i, i+1)
	return true
}

// run brings the decoder's loads, one after the other, until there are no more.
func (s *Set) run(d *Decoder) {
	defer s.goroutines.Done()
	m := &s.c.Meter.Queued[meter.Decompress]
	m.Add(1)
	defer m.Add(-1)
	s.TakeCore()
	defer s.GiveCore()
	d.turn = d.pos
	for {
		l, to, more := s.next(d)
		if !more {
			return
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
			return
		}
		if l != nil {
			s.mu.Lock()
			s.hold(d, d.memory())
			s.mu.Unlock()
			s.work.Came(l)
		}
		s.yield(d)
	}
}

// yield lets others have the core between two pieces, after a turn of twice
// the bytes that the decoder holds: what a window has left the core's cache
// for comes in again once a turn. Seven decoders with windows of 8 MiB took
// twice the time in turns of a piece each.
func (s *Set) yield(d *Decoder) {
	if d.pos-d.turn < min(2*d.memory(), maxTurnBytes) {
		return
	}
	s.GiveCore()
	s.TakeCore()
	d.turn = d.pos
}

// next decides what the decoder does from where it stands: bring a load, whose memory
// is then there, and be at its end; or pass over what nobody wants, to some place.
// With neither it has paused, or the set is closed.
func (s *Set) next(d *Decoder) (l Load, to int64, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if came := d.pos - int64(len(d.tail)); came > d.at && !s.closed {
		// It has gone on to where a member ends, or a point is, behind the load that it has brought: of a
		// piece there may be other loads before that place.
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
		if l = d.work[0]; l.Piece() > d.piece {
			passing := s.keepInPassing(d)
			if passing != nil {
				_, _, d.at = passing.Bounds()
				s.passOver(d)
				return passing, d.at, true
			}
			if len(d.work) == 0 || d.work[0].Piece() <= d.piece {
				continue // since it was decided not to keep the piece
			}
			// Piece by piece, so that loads in between can still be given to it.
			d.piece++
			if to := s.c.Pieces.StartBytes(d.piece); to > d.pos {
				s.notePassed(d, to-d.pos)
				d.at = to
				return nil, to, true
			}
			continue
		}
		d.work = d.work[1:]
		d.piece = l.Piece() + 1
		at := d.at
		_, _, d.at = l.Bounds()
		s.mu.Unlock()
		room := s.work.Room(l)
		s.mu.Lock()
		if room {
			return l, d.at, true
		}
		d.at = at
	}
	loads := s.end(d)
	s.mu.Unlock()
	s.work.Failed(loads, budget.ErrClosed)
	s.mu.Lock()
	return nil, 0, false
}

// sweepOn is next where the decoder has nothing to bring: it may go on to a piece
// that is wanted and not there, while there is memory. Otherwise it gives where the
// decoder is. It lets go of mu.
func (s *Set) sweepOn(d *Decoder) (Load, int64) {
	s.mu.Unlock()
	piece := s.work.Next(d.shard, d.piece)
	s.mu.Lock()
	if piece < 0 || len(d.work) > 0 || s.closed {
		return nil, d.pos
	}
	passed := piece > d.piece
	d.piece = piece
	if to := s.c.Pieces.StartBytes(piece); passed && to > d.pos {
		s.notePassed(d, to-d.pos)
		return nil, to
	}
	if passing := s.keepInPassing(d); passing != nil {
		_, _, reach := passing.Bounds()
		return passing, reach
	}
	return nil, d.pos
}

// keepInPassing makes a load of the piece that comes next, if it is worth it. It lets
// go of mu: meanwhile loads may come, but none of a piece before this one. Nor can
// there be another of this piece where it is kept.
func (s *Set) keepInPassing(d *Decoder) Load {
	d.asking = true
	s.mu.Unlock()
	l := s.work.Passing(d, d.piece)
	s.mu.Lock()
	d.asking = false
	if l != nil {
		d.piece++
	}
	return l
}

// fail ends a decoder and all its loads, of which l is the one that it was at.
func (s *Set) fail(d *Decoder, l Load, err error) {
	if _, ok := errors.AsType[*format.CorruptError](err); ok {
		s.work.Broken(d.shard, err)
	}
	s.mu.Lock()
	loads := s.end(d)
	s.mu.Unlock()
	if l != nil {
		loads = append([]Load{l}, loads...)
	}
	s.work.Failed(loads, err)
}

// end forgets a decoder and gives the loads that it had to bring.
func (s *Set) end(d *Decoder) []Load {
	loads := d.work
	d.work = nil
	d.running = false
	s.remove(d)
	return loads
}
