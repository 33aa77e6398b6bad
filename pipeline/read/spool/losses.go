package spool

import "time"

// Losses are what a spool did not give back as it was written: its disk was full
// when the kernel came to write, it failed, or somebody has written there. Times are
// nanoseconds since any one moment. It is not for concurrent use.
type Losses struct {
	Pieces, Shards uint64 // so far

	of     map[int]loss // by shard
	warned int64        // when the last warning was, 0 before the first
}

// loss is what is remembered of a shard that was damaged in the spool.
type loss struct {
	times int
	until int64 // when it is forgotten
}

const (
	// Tries is how often a shard goes into the spool until it is read without.
	// The second time works where a disk has lost a few blocks.
	Tries = 2
	// lossNanos is for how long a loss is remembered: a disk that is full may have
	// room again, and to find out that it has none costs decoding all of it.
	lossNanos = int64(10 * time.Minute)
	// noPlaceNanos is for how long a shard is read without a shelf that had no place for it.
	noPlaceNanos = int64(30 * time.Second)
	// warnNanos is the least time between two warnings.
	warnNanos = int64(time.Minute)
)

// Avoids says whether a shard is read without the spool for a while: decoders then
// bring its pieces, each going through the shard up to there. That is slow, and right.
func (l *Losses) Avoids(shard int, now int64) bool {
	x := l.of[shard]
	return x.times >= Tries && now < x.until
}

// Add notes that a shard was damaged, and says whether to warn of it.
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

// Avoid has a shard read without the spool for a while: the shelf has no place for it.
func (l *Losses) Avoid(shard int, now int64) {
	if l.of == nil {
		l.of = map[int]loss{}
	}
	l.of[shard] = loss{Tries, now + noPlaceNanos}
}

// Forget forgets which shards were damaged, so that they are spooled again.
func (l *Losses) Forget() { clear(l.of) }
