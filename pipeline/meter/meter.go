package meter

import (
	"sync"
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

// WaitClock sums up waits by stage, both those that have ended and those in progress. The zero value
// is ready for use.
//
// A goroutine that waits for another one passes the other one's ledger (via). Its wait is charged,
// moment by moment, to the stage that the other one waits for:
//
//	reader   ├── waits for a decoder ──────────────┤
//	decoder    decodes │ waits for storage │ decodes
//	charged    decompr.│ storage           │ decompress
type WaitClock struct {
	mu    sync.Mutex
	ended Totals
	open  []wait // by number; the ended ones are free
	free  []int
}

// wait is a wait in progress.
type wait struct {
	since  int64
	on     Stage
	via    *WaitClock // ledger of the goroutine that is waited for; nil: charge on alone
	before Totals     // sums of via, at the start
	place  Locator
	at     uint64
	going  bool
}

// Locator finds names of positions in a dataset, for display.
type Locator interface {
	// Object returns the name of the object at a position; at is the Place's own number for it.
	Object(at uint64) string
}

// Begin starts a wait for a stage at now, and returns its number. via and place may be nil.
func (l *WaitClock) Begin(now int64, on Stage, via *WaitClock, place Locator, at uint64) int {
	w := wait{since: now, on: on, via: via, place: place, at: at, going: true}
	if via != nil {
		w.before = via.Sums(now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		i := l.free[n-1]
		l.free, l.open[i] = l.free[:n-1], w
		return i
	}
	l.open = append(l.open, w)
	return len(l.open) - 1
}

// End ends a wait and returns its duration in nanoseconds.
func (l *WaitClock) End(number int, now int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.open[number]
	w.addTo(&l.ended, now)
	nanos := max(now-w.since, 0)
	*w = wait{}
	l.free = append(l.free, number)
	return nanos
}

// addTo adds the wait until now to sums.
func (w *wait) addTo(sums *Totals, now int64) {
	left := max(now-w.since, 0)
	if w.via != nil {
		for s, nanos := range w.via.Sums(now) {
			n := min(max(nanos-w.before[s], 0), left)
			sums[s] += n
			left -= n
		}
	}
	sums[w.on] += left
}

// Sums returns the sums of all waits until now.
func (l *WaitClock) Sums(now int64) Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := l.ended
	for i := range l.open {
		if l.open[i].going {
			l.open[i].addTo(&sums, now)
		}
	}
	return sums
}

// Waiting is a wait in progress.
type Waiting struct {
	On     Stage
	Nanos  int64
	Object string // "" if unknown
}

// Oldest returns the longest wait in progress.
func (l *WaitClock) Oldest(now int64) (Waiting, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest *wait
	for i := range l.open {
		if w := &l.open[i]; w.going && (oldest == nil || w.since < oldest.since) {
			oldest = w
		}
	}
	if oldest == nil {
		return Waiting{}, false
	}
	x := Waiting{On: oldest.on, Nanos: max(now-oldest.since, 0)}
	if oldest.place != nil {
		x.Object = oldest.place.Object(oldest.at)
	}
	if oldest.via != nil {
		if y, ok := oldest.via.Oldest(now); ok {
			x.On = y.On
		}
	}
	return x, true
}

// Waiter records the waits of one goroutine in a ledger, and adds them up. A nil Waiter records
// nothing. It must not be used concurrently.
type Waiter struct {
	Ledger *WaitClock
	Nanos  int64
}

// Begin begins a wait.
func (w *Waiter) Begin(on Stage, via *WaitClock, place Locator, at uint64) int {
	if w == nil || w.Ledger == nil {
		return 0
	}
	return w.Ledger.Begin(Now(), on, via, place, at)
}

// End ends the wait with the given number.
func (w *Waiter) End(number int) {
	if w == nil || w.Ledger == nil {
		return
	}
	w.Nanos += w.Ledger.End(number, Now())
}

// Level counts goroutines at work: their current number, and the sum of their working times, which
// never decreases. The zero value is ready for use.
type Level struct {
	mu    sync.Mutex // held for a few additions
	n     int64
	since int64 // when n last changed or was read
	sum   int64 // in nanoseconds, until since
}

// Begin counts one more goroutine from now on.
func (l *Level) Begin(now int64) { l.change(1, now) }

// End counts one goroutine fewer from now on.
func (l *Level) End(now int64) { l.change(-1, now) }

// Add adds time that was measured separately.
func (l *Level) Add(nanos int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum += nanos
}

func (l *Level) change(by, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	l.n += by
}

// advance adds the working time until now. If now is in the past, because another goroutine read
// the clock later, it does nothing. It is called with mu held.
func (l *Level) advance(now int64) {
	if now > l.since {
		l.sum += l.n * (now - l.since)
		l.since = now
	}
}

// Sum returns the sum of the times until now.
func (l *Level) Sum(now int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n > 0 {
		l.advance(now)
	}
	return l.sum
}

// Busy counts things in flight, and the time in which there are any. It reads the clock only when
// the first one begins and the last one ends. The zero value is ready for use.
type Busy struct {
	n atomic.Int64
	// any has one goroutine while n is above 0. If things begin and end at the same time, their
	// calls may arrive in another order; it then briefly has two, or none.
	any Level
}

// Begin adds n > 0 things.
func (b *Busy) Begin(n int) {
	if b.n.Add(int64(n)) == int64(n) {
		b.any.Begin(Now())
	}
}

// End removes one.
func (b *Busy) End() {
	if b.n.Add(-1) == 0 {
		b.any.End(Now())
	}
}

// Any reports whether there are any.
func (b *Busy) Any() bool { return b.n.Load() > 0 }

// Sum returns the time with any until now, and their current number.
func (b *Busy) Sum(now int64) (nanos, n int64) { return b.any.Sum(now), b.n.Load() }
