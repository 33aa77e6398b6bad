package decode

import (
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// outlines keeps the outlines of shards that are decoded from ranges, so that not every decoder
// reads that of its shard again. It is safe for concurrent use.
type outlines struct {
	mu     sync.Mutex
	kept   map[int]format.Outline // by shard
	bytes  int64                  // that they take
	oldest []int                  // the shards, in the order in which they were kept
}

// outlineBytes bounds what all outlines of a set take: those of hundreds of ordinary shards.
const outlineBytes = 8 << 20

// of returns the outline of a shard, or nil.
func (o *outlines) of(shard int) format.Outline {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept[shard]
}

// keep keeps the outline of a shard, if it has one and it is not kept yet. Older ones are dropped for it.
func (o *outlines) keep(shard int, x format.Outline) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if x == nil || o.kept[shard] != nil || x.MemoryBytes() > outlineBytes {
		return
	}
	for o.bytes+x.MemoryBytes() > outlineBytes {
		o.bytes -= o.kept[o.oldest[0]].MemoryBytes()
		delete(o.kept, o.oldest[0])
		o.oldest = o.oldest[1:]
	}
	if o.kept == nil {
		o.kept = map[int]format.Outline{}
	}
	o.kept[shard] = x
	o.bytes += x.MemoryBytes()
	o.oldest = append(o.oldest, shard)
}
