package cubes

import (
	"container/list"
	"sync"
)

// cells are decoded bricks that are kept, those that were used last. They are bounded.
type cells struct {
	maxBytes int64

	mu    sync.Mutex
	held  int64 // bytes of all that were taken and not given back
	byKey map[key]*cell
	used  list.List // of *cell that nobody uses, the oldest first
}

// cell is a decoded brick.
type cell struct {
	key   key
	bytes []byte
	users int
	at    *list.Element // in used, nil while there are users
}

func newCells(maxBytes int64) *cells {
	return &cells{maxBytes: maxBytes, byKey: map[key]*cell{}}
}

func (c *cells) heldBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// get gives a brick that is kept, which the caller releases; nil where it is not.
func (c *cells) get(k key) *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.byKey[k]
	if x == nil {
		return nil
	}
	if x.users++; x.at != nil {
		c.used.Remove(x.at)
		x.at = nil
	}
	return x
}

// take gives a cell for a brick, to be decoded into and added or dropped. It is nil where there is
// no room: others use all that is kept, or the brick is larger than all of it.
func (c *cells) take(k key, sizeBytes int64) *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sizeBytes > c.maxBytes {
		return nil
	}
	var b []byte
	for c.held+sizeBytes > c.maxBytes {
		oldest := c.used.Front()
		if oldest == nil {
			return nil
		}
		x := c.used.Remove(oldest).(*cell)
		delete(c.byKey, x.key)
		c.held -= int64(len(x.bytes))
		if int64(len(x.bytes)) == sizeBytes {
			b = x.bytes
		}
	}
	if b == nil {
		b = make([]byte, sizeBytes)
	}
	c.held += sizeBytes
	return &cell{key: k, bytes: b, users: 1}
}

// add keeps a cell that was decoded. Its user releases it all the same.
func (c *cells) add(x *cell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[x.key] == nil {
		c.byKey[x.key] = x
	}
}

// release ends a use.
func (c *cells) release(x *cell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.users--; x.users > 0 {
		return
	}
	if c.byKey[x.key] != x { // it was not added, or another one of it was before
		c.held -= int64(len(x.bytes))
		return
	}
	x.at = c.used.PushBack(x)
}
