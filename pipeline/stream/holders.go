package stream

import (
	"slices"
	"sync"
	"sync/atomic"
)

// recent is who has read data last, without a clock.
type recent struct {
	cores int // processors that may be busy at once; constant
	n     atomic.Uint32
	reads [32]atomic.Uint64 // numbers of handles
}

// add notes a read, and says whether there are cores for reading ahead: where
// many readers take turns all cores are busy, and filling blocks would only take
// them away from answering.
func (c *recent) add(handle uint64) bool {
	c.reads[c.n.Add(1)%uint32(len(c.reads))].Store(handle)
	if c.cores == 1 {
		return false
	}
	var seen [len(c.reads)]uint64
	n := 0
	for i := range c.reads {
		number := c.reads[i].Load()
		if number == 0 || slices.Contains(seen[:n], number) {
			continue
		}
		seen[n] = number
		if n++; n > c.cores/2 {
			return false
		}
	}
	return true
}

// forget takes a handle that is closed out.
func (c *recent) forget(handle uint64) {
	for i := range c.reads {
		c.reads[i].CompareAndSwap(handle, 0)
	}
}

// holders are the handles with blocks, the one that got a block last at the end.
type holders struct {
	mu     sync.Mutex
	list   []*Handle
	blocks atomic.Int64 // of all of them, and of replies
}

// newBlock gives a handle one more block. Where all that may be are out, it
// takes those of a handle that has not asked for long, and gives nil this time.
func (s *Source) newBlock(h *Handle, from, to int64) *block {
	s.holders.mu.Lock()
	defer s.holders.mu.Unlock()
	list := slices.DeleteFunc(s.holders.list, func(o *Handle) bool { return o == h })
	s.holders.list = append(list, h)
	if s.holders.blocks.Load() >= maxBlocks {
		for i, o := range list {
			if o.giveUp() {
				s.holders.list = slices.Delete(s.holders.list, i, i+1)
				break
			}
		}
		return nil
	}
	s.holders.blocks.Add(1)
	b := &block{source: s, from: from, to: to, buffer: s.buffers.get(int(to - from))}
	b.refs.Store(1)
	return b
}

func (c *holders) remove(h *Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(o *Handle) bool { return o == h })
}
