package read

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Changes records the shards that reads have found changed, or missing, since they were indexed.
// Several fetchers may share one. It is safe for concurrent use.
type Changes struct {
	mu    sync.Mutex
	seen  map[string]struct{} // shards that were counted
	first []Change
}

// Change is a shard that differs from what was indexed.
type Change struct {
	Shard  string    `json:"shard"`
	Reason string    `json:"reason"`
	Seen   time.Time `json:"seen"`
}

// Changed is a snapshot of Changes.
type Changed struct {
	// Count is the number of changed shards, at most changesCounted. First are those that were seen
	// first.
	Count int      `json:"count"`
	First []Change `json:"first"`
}

const (
	// changesCounted is the maximum number of shards whose names are kept, so that each is counted
	// once: less than 1 MB.
	changesCounted = 4096
	// changesKept is for how many of them the reasons are kept: as many as a person reads.
	changesKept = 64
)

// Note records the shard of err if err wraps storage.ErrChanged.
func (c *Changes) Note(err error) {
	if !errors.Is(err, storage.ErrChanged) {
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

// Changed returns what was seen so far, nil if nothing was.
func (c *Changes) Changed() *Changed {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) == 0 {
		return nil
	}
	return &Changed{Count: len(c.seen), First: c.first[:len(c.first):len(c.first)]}
}
