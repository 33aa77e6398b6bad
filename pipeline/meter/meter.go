package meter

import (
	"sync/atomic"
	"time"
)

// Stage is a step on the way from a dataset to its readers.
type Stage uint8

const (
	Index      Stage = iota // finding the records of shards
	Order                   // computing the order and the sizes of streams
	Storage                 // reading
	Decompress              // decoding compressed shards
	Gather                  // copying read bytes into place, and checking them
	Copy                    // assembling replies from records, when readers ask and ahead of them
	FUSE                    // handing replies to the kernel
	Stages     = 7          // the number of stages
)

var names = [Stages]string{"index", "order", "storage", "decompress", "gather", "copy", "fuse"}

func (s Stage) String() string { return names[s] }

// Totals are nanoseconds by stage.
type Totals [Stages]int64

var started = time.Now()

// Now returns a monotonic time in nanoseconds, with an arbitrary zero.
func Now() int64 { return int64(time.Since(started)) }

// Meter has the counters of one dataset. The zero value is ready for use. Its methods, and those of
// its parts, may be called concurrently.
type Meter struct {
	// Cores is how many goroutines may compute concurrently. It must be set before anything is
	// counted.
	Cores int
	// Readers has the waits of readers' requests.
	Readers WaitClock
	// Working counts the goroutines at work in a stage; it is not used for Storage, Copy and FUSE.
	Working [Stages]Level
	// Reading counts the reads in flight in storage.
	Reading Busy
	// Queued is how much is in a stage: shards being decoded, reads whose bytes have arrived,
	// readers' requests without a reply.
	Queued [Stages]atomic.Int64
	// Copied is the time of readers' requests without their waits. Ahead is the time of copying
	// ahead of readers. Replied is the time until the kernel has received the replies.
	Copied, Ahead, Replied atomic.Int64
}

// Times has the counters at one point in time, in nanoseconds.
type Times struct {
	At    int64 // time of Now
	Busy  Totals
	Waits Totals // of readers' requests
	// Copied is the part of Busy[Copy] spent in readers' requests.
	Copied int64
	Queued [Stages]int64 // a count at that time, not nanoseconds
}

// Times returns the counters at now.
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

// Timed wraps rest, a function that may pause its caller. The time between two calls of the
// returned function counts as work of stage s, starting now.
func (m *Meter) Timed(s Stage, rest func() bool) func() bool {
	began := Now()
	return func() bool {
		m.Working[s].Add(Now() - began)
		goOn := rest()
		began = Now()
		return goOn
	}
}
