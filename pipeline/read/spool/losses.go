package spool

import "time"

// Losses records the data that could not be read back from a spool as it was written, because the
// disk was full when the kernel wrote the pages, the disk failed, or someone else wrote to the
// files. Times are nanoseconds since a fixed but arbitrary moment. It is not safe for concurrent
// use.
type Losses struct {
	Pieces, Shards uint64 // so far

	of     map[int]loss // by shard
	warned int64        // when the last warning was, 0 before the first
}

// loss records that a shard was damaged in the spool.
type loss struct {
	times int
	until int64 // when it is forgotten
}

const (
	// Tries is how many times a shard is spooled before it is read without the spool. The second
	// try succeeds if the disk has lost only a few blocks.
	Tries = 2
	// lossNanos is how long a loss is remembered. A full disk may have room again later, but
	// finding out that it has none costs decoding the whole shard.
	lossNanos = int64(10 * time.Minute)
	// noPlaceNanos is how long a shard is read without the shelf after the shelf had no place for it.
	noPlaceNanos = int64(30 * time.Second)
	// warnNanos is the least time between two warnings.
	warnNanos = int64(time.Minute)
)

// Avoids reports whether a shard is currently read without the spool. Its pieces then come from
// decoders, each of which decodes the shard up to its piece. That is slow but correct.
func (l *Losses) Avoids(shard int, now int64) bool {
	x := l.of[shard]
	return x.times >= Tries && now < x.until
}

// Add records that a shard was damaged, and reports whether to warn about it.
func (l *Losses) Add(shard int, now int64) (warn bool) {
	l.Shards++
	x := l.of[shard]
	if now >= x.until {
		x.times = 0
	}
	if l.of == nil {
		l.of = map[int]loss{}
	}
	l.of[shard] = loss{x.times + 1, now + lossNanos}
	if warn = l.warned == 0 || now >= l.warned+warnNanos; warn {
		l.warned = now
	}
	return warn
}

// Avoid makes Avoids return true for a shard for noPlaceNanos, because the shelf has no place for it.
func (l *Losses) Avoid(shard int, now int64) {
	if l.of == nil {
		l.of = map[int]loss{}
	}
	l.of[shard] = loss{Tries, now + noPlaceNanos}
}

// Forget forgets which shards were damaged, so that they are spooled again.
func (l *Losses) Forget() { clear(l.of) }
