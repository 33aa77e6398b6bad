package pipeline

import (
	"container/list"
	"sync"
)

// cache is a bounded LRU cache. While a value is being made, callers that ask for the same key wait
// for it; callers with other keys don't.
type cache[K comparable, V any] struct {
	most int

	mu      sync.Mutex
	entries map[K]*list.Element
	recent  *list.List // of *remembered[K, V], most recent first
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

// get returns the value of key, calling fill if it is not cached. Errors are not cached.
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
