package fetch

import "slices"

// urgency says what may be done to find memory for a piece.
type urgency int

const (
	inPassing urgency = iota // stay within the budget, and drop nothing that has not gone out
	ahead                    // stay within the budget
	demanded                 // a reader waits: stay within the budget if possible
)

// cache holds the segments. All its methods are called with Fetcher.mu held.
type cache struct {
	memory
	budget  int64 // for segments; decoders' memory is taken off it
	cur     *segment
	segs    []*segment // oldest first
	slots   *slots
	dropped uint64 // pieces of which something was lost that had not gone out
}

// alloc finds n bytes for a piece and pins their segment.
func (c *cache) alloc(n int64, u urgency) (*segment, int64, error) {
	n = max(n, 1)
	if n > c.segment {
		seg, err := c.newSegment(n, u)
		if err != nil {
			return nil, 0, err
		}
		return seg, seg.place(n), nil
	}
	for c.cur == nil || !c.cur.fits(n) {
		before := c.cur
		seg, err := c.newSegment(c.segment, u)
		if err != nil {
			return nil, 0, err
		}
		if c.cur != before && c.cur != nil && c.cur.fits(n) {
			// What was copied to make room left room behind it: the new
			// segment is not needed now.
			c.free(seg)
			break
		}
		c.cur = seg
	}
	return c.cur, c.cur.place(n), nil
}

func (s *segment) fits(n int64) bool { return int64(len(s.mem))-s.used >= n }

// place takes n bytes, and pins. Pieces begin at cache lines.
func (s *segment) place(n int64) int64 {
	off := s.used
	s.used = min((off+n+63)&^63, int64(len(s.mem)))
	s.pins.Add(1)
	return off
}

func (c *cache) newSegment(n int64, u urgency) (*segment, error) {
	usual := n == c.segment
	for !(usual && len(c.spare) > 0) && c.mapped+n > c.budget {
		if !usual && len(c.spare) > 0 {
			if err := c.memory.close(); err != nil {
				return nil, err
			}
			continue
		}
		if ok, err := c.evict(u); err != nil {
			return nil, err
		} else if !ok {
			if u != demanded {
				return nil, errNoRoom
			}
			break
		}
	}
	mem, err := c.take(n)
	if err != nil {
		return nil, err
	}
	seg := &segment{mem: mem}
	c.segs = append(c.segs, seg)
	return seg, nil
}

// evict frees one segment, and reports whether it found one. The oldest of
// which most has gone out is best; then one that is worth copying; then, so
// that a reader that has stopped can't keep memory, the oldest.
func (c *cache) evict(u urgency) (bool, error) {
	for _, share := range [...]int64{0, 50, 80, 100} {
		if u == inPassing && share == 100 {
			return false, nil
		}
		for _, s := range c.segs {
			if s.live.Load()*100 <= share*s.used && s.kill() {
				return true, c.clear(s, share < 100)
			}
		}
	}
	return false, nil
}

// clear frees a dead segment, having copied what has not gone out if keep says so.
func (c *cache) clear(s *segment, keep bool) error {
	if s == c.cur {
		c.cur = nil
	}
	n := int64(0)
	for _, e := range s.entries {
		if c.slots.at(e.piece) == e {
			n += e.liveBytes()
		}
	}
	var to *segment
	if keep && n > 0 && n <= c.segment {
		to = c.copyTarget(n)
	}
	for _, e := range s.entries {
		if c.slots.at(e.piece) != e {
			continue // another one took its place
		}
		var kept *entry
		if to != nil {
			kept = e.copyTo(to)
		} else if e.liveBytes() > 0 {
			c.dropped++
		}
		c.slots.set(e.piece, kept)
	}
	c.segs = slices.DeleteFunc(c.segs, func(x *segment) bool { return x == s })
	return c.release(s)
}

// copyTarget is a segment with room for n bytes, beyond the budget if need be:
// the one that is being cleared comes back at once. nil when there is no memory.
func (c *cache) copyTarget(n int64) *segment {
	if c.cur != nil && c.cur.fits(n) {
		return c.cur
	}
	mem, err := c.take(c.segment)
	if err != nil {
		return nil
	}
	c.cur = &segment{mem: mem}
	c.segs = append(c.segs, c.cur)
	return c.cur
}

// copyTo copies what has not gone out, and gives its entry, nil for nothing.
func (e *entry) copyTo(to *segment) *entry {
	var kept *entry
	for i, s := range e.spans {
		if s.size < 0 || e.delivered(i) {
			continue
		}
		if kept == nil {
			kept = newEntry(to, e.piece, make([]span, len(e.spans)))
			kept.whole = false
			kept.bad = e.bad
			for w := range e.out {
				kept.out[w].Store(e.out[w].Load())
			}
			for j := range kept.spans {
				kept.spans[j].size = -1
			}
			to.entries = append(to.entries, kept)
		}
		copy(to.mem[to.used:], e.seg.mem[s.off:s.off+s.size])
		kept.spans[i] = span{to.used, s.size}
		to.used += s.size
		to.live.Add(s.size)
	}
	return kept
}

// free gives a segment back that holds nothing and that nobody has seen.
func (c *cache) free(s *segment) {
	s.kill()
	c.segs = slices.DeleteFunc(c.segs, func(x *segment) bool { return x == s })
	_ = c.release(s) // a mapping that can't be unmapped stays counted
}

func (c *cache) release(s *segment) error {
	mem := s.mem
	s.mem, s.entries = nil, nil
	return c.give(mem)
}
