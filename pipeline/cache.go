package pipeline

import (
	"container/list"
	"sync"
)

// cache remembers the values that were asked for last, a bounded number. A
// value that is being made is waited for by those who ask for the same key; the
// others go on.
type cache[K comparable, V any] struct {
	most int

	mu      sync.Mutex
	entries map[K]*list.Element
	recent  *list.List // of *remembered[K, V], the latest in front
}

type remembered[K comparable, V any] struct {
	key   K
	once  sync.Once
	value V
	err   error
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: most, entries: make(map[K]*list.Element), recent: list.New()}
}

// get returns the value of key, made by fill where it is not remembered. An
// error is not remembered.
func (c *cache[K, V]) get(key K, fill func() (V, error)) (V, error) {
	c.mu.Lock()
	e := c.entries[key]
	if e == nil {
		e = c.recent.PushFront(&remembered[K, V]{key: key})
		c.entries[key] = e
		if c.recent.Len() > c.most {
			c.drop(c.recent.Back())
		}
	}
	c.recent.MoveToFront(e)
	c.mu.Unlock()

	v := e.Value.(*remembered[K, V])
	v.once.Do(func() { v.value, v.err = fill() })
	if v.err != nil {
		c.mu.Lock()
		if c.entries[key] == e {
			c.drop(e)
		}
		c.mu.Unlock()
	}
	return v.value, v.err
}

func (c *cache[K, V]) drop(e *list.Element) {
	c.recent.Remove(e)
	delete(c.entries, e.Value.(*remembered[K, V]).key)
}
