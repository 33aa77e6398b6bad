package meter

import "sync"

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
