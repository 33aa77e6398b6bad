package meter

import (
	"sync/atomic"
	"time"
)

// Stage is a part of the way from a dataset to its readers.
type Stage uint8

const (
	Index      Stage = iota // finding the records of shards
	Order                   // computing the order and the sizes of streams
	Storage                 // reading
	Decompress              // decoding compressed shards
	Gather                  // copying what was read together to its places, and checking it
	Copy                    // making replies of records, by readers' requests and ahead of them
	FUSE                    // handing replies to the kernel
	Stages     = 7          // so many
)

var names = [Stages]string{"index", "order", "storage", "decompress", "gather", "copy", "fuse"}

func (s Stage) String() string { return names[s] }

// Sums are nanoseconds, by stage.
type Sums [Stages]int64

var started = time.Now()

// Now is a monotonic clock: nanoseconds, from somewhen on.
func Now() int64 { return int64(time.Since(started)) }

// Meter is the counters of one dataset. The zero value is ready. Its methods,
// and those of its parts, may be called concurrently.
type Meter struct {
	// Cores is how many goroutines may compute at a time; set before anything counts.
	Cores int
	// Readers are the waits of requests of readers.
	Readers Ledger
	// Working are the goroutines that are at work in a stage; not of Storage, Copy
	// and FUSE.
	Working [Stages]Level
	// Reading are the reads that are with the storage.
	Reading Busy
	// Queued is how much is in a stage: shards that are decoded, reads whose bytes
	// have come, requests of readers that have not been answered.
	Queued [Stages]atomic.Int64
	// Copied is the time that requests of readers have taken without their waits,
	// Ahead that of those who copy ahead of them, Replied that until the kernel had
	// the replies.
	Copied, Ahead, Replied atomic.Int64
}

// Times are the counters at one time, in nanoseconds.
type Times struct {
	At    int64 // Now
	Busy  Sums
	Waits Sums // of readers' requests
	// Copied is the part of Busy[Copy] that requests of readers took.
	Copied int64
	Queued [Stages]int64 // now: no nanoseconds
}

// Times gives the counters at now.
func (m *Meter) Times(now int64) Times {
	t := Times{At: now, Waits: m.Readers.Sums(now), Copied: m.Copied.Load()}
	for s := range t.Busy {
		t.Busy[s] = m.Working[s].Sum(now)
		t.Queued[s] = m.Queued[s].Load()
	}
	t.Busy[Storage], t.Queued[Storage] = m.Reading.Sum(now)
	t.Busy[Copy] += t.Copied + m.Ahead.Load()
	t.Busy[FUSE] += m.Replied.Load()
	return t
}

// Timed counts what is done between two calls of a function as work of a stage,
// from now on; the function itself may rest.
func (m *Meter) Timed(s Stage, rest func() bool) func() bool {
	began := Now()
	return func() bool {
		m.Working[s].Add(Now() - began)
		goOn := rest()
		began = Now()
		return goOn
	}
}
