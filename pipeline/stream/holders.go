package stream

import (
	"slices"
	"sync"
	"sync/atomic"
)

// recent remembers which handles read data last, without a clock.
type recent struct {
	cores int // CPUs that may be busy at once; constant
	n     atomic.Uint32
	reads [32]atomic.Uint64 // numbers of handles
}

// add records a read, and reports whether cores are idle for reading ahead. If many readers take
// turns, all cores are busy, and filling blocks would only slow down replies.
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

// forget removes a closed handle.
func (c *recent) forget(handle uint64) {
	for i := range c.reads {
		c.reads[i].CompareAndSwap(handle, 0)
	}
}

// holders are the handles with blocks, ordered by when they last got one, the latest last.
type holders struct {
	mu     sync.Mutex
	list   []*Handle
	blocks atomic.Int64 // of all handles and replies
}

// newBlock returns a new block for a handle. If all maxBlocks are in use, it takes back the blocks
// of the handle that has gone longest without a new one, and returns nil this time.
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
