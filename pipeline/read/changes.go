package read

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Changes keeps which shards reads have found changed, or gone, since they were indexed. Several
// fetchers may share one. It is safe for concurrent use.
type Changes struct {
	mu    sync.Mutex
	seen  map[string]struct{} // the shards that were counted
	first []Change
}

// Change is a shard that is no longer what was indexed.
type Change struct {
	Shard  string    `json:"shard"`
	Reason string    `json:"reason"`
	Seen   time.Time `json:"seen"`
}

// Changed is a snapshot of Changes.
type Changed struct {
	// Count is how many shards have changed, of which First are those that were seen first. It stops at
	// changesCounted.
	Count int      `json:"count"`
	First []Change `json:"first"`
}

const (
	// changesCounted bounds of how many shards the names are kept, to count each once: they are less than 1 MB.
	changesCounted = 4096
	// changesKept is of how many the reasons are kept: as many as a person reads.
	changesKept = 64
)

// note looks whether err says that a shard has changed.
func (c *Changes) note(err error) {
	if c == nil || !errors.Is(err, storage.ErrChanged) {
		return
	}
	of, ok := errors.AsType[*storage.Error](err)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.seen[of.Object]; known || len(c.seen) == changesCounted {
		return
	}
	if c.seen == nil {
		c.seen = map[string]struct{}{}
	}
	c.seen[of.Object] = struct{}{}
	if len(c.first) < changesKept {
		reason := strings.TrimSuffix(strings.TrimSuffix(of.Err.Error(), storage.ErrChanged.Error()), ": ")
		c.first = append(c.first, Change{Shard: of.Object, Reason: reason, Seen: time.Now()})
	}
}

// Changed gives what was seen so far, nil for nothing.
func (c *Changes) Changed() *Changed {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) == 0 {
		return nil
	}
	return &Changed{Count: len(c.seen), First: c.first[:len(c.first):len(c.first)]}
}
