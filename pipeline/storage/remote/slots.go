package remote

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Bounds and steps of slots.
const (
	fewestSlots  = 4
	firstSlots   = 16
	restAfterCut = 10 * time.Second // no fills for this long after a throttle
	growAgain    = 5 * time.Second  // after a growth that brought no gain
	// doubtful is the number of seconds in a row without gain after which a growth is undone. The
	// rate of one second can be lower by chance: because of whatever else the machine, the network
	// or a reader does.
	doubtful = 2
)

// slots decides how many requests may be running. The number grows while that increases the rate,
// and is halved when the service is overloaded. It is plain arithmetic: the engine calls it under
// its lock.
//
//	×2     at first, after a second in which 90 % were used and more reads waited, until
//	       that brings less than half as much again, or a throttle
//	+25 %  from then on, after such a second; undone after two more of them if bytes per
//	       second have not grown by 5 % in either, and then not tried for 5 s
//	×2     after any second without a throttle, up to half of the number before throttling
//	       began; +25 % from there up to that number
//	−50 %  at most once per second, after 429, 503 or SlowDown
type slots struct {
	limit, most int

	cut    time.Time // time of the last halving; zero: none
	before int       // limit before the first of a series of halvings

	second      time.Time // start of the current second
	bytes       int64     // received in it
	looks, full int       // completions in it, and those with all slots used and reads waiting
	rate        float64   // bytes per second, in the last second

	tried    int       // limit before the last growth, while its effect is unknown; 0: it is known
	base     float64   // rate before the last growth
	doubts   int       // seconds since then in which the rate was no higher
	known    bool      // the useful number is roughly known: growth does not double any more
	notUntil time.Time // earliest time of the next growth
}

func newSlots(most int) slots {
	return slots{limit: min(firstSlots, most), most: most}
}

// throttled is called for each answer that means that the service is overloaded.
func (s *slots) throttled(now time.Time) {
	if !s.cut.IsZero() && now.Sub(s.cut) < time.Second {
		return
	}
	if s.cut.IsZero() || now.Sub(s.cut) >= restAfterCut || s.limit*2 > s.before {
		s.before = s.limit // otherwise it is the same overload
	}
	s.cut, s.tried, s.known = now, 0, true
	s.limit = max(s.limit/2, min(fewestSlots, s.most))
}

// resting reports whether the service was throttled so recently that only data that a reader will
// wait for is read.
func (s *slots) resting(now time.Time) bool {
	return !s.cut.IsZero() && now.Sub(s.cut) < restAfterCut
}

// completed is called when a request has completed, with the numbers of used slots and of waiting
// reads before that, and how many bytes it returned.
func (s *slots) completed(now time.Time, used, waiting int, bytes int64) {
	if s.second.IsZero() {
		s.second = now
	}
	s.bytes += bytes
	s.looks++
	if used*10 >= s.limit*9 && waiting > 0 {
		s.full++
	}
	passed := now.Sub(s.second)
	if passed < time.Second {
		return
	}
	s.rate = float64(s.bytes) / passed.Seconds()
	switch {
	case s.cut.After(s.second) || s.bytes == 0:
	case s.limit*4 <= s.before:
		s.limit = min(s.limit*2, s.most)
	case s.limit < s.before:
		s.limit = min(s.limit+max(s.limit/4, 1), s.before)
	case s.full*10 >= s.looks*9:
		s.adjust(now)
	default:
		s.tried = 0 // the rate was not limited by slots
	}
	s.second, s.bytes, s.looks, s.full = now, 0, 0, 0
}

// adjust is called after a second in which the slots were the bottleneck.
func (s *slots) adjust(now time.Time) {
	switch {
	case s.tried == 0:
	case s.rate < s.base*1.05:
		if s.doubts++; s.doubts >= doubtful {
			s.limit, s.tried, s.known, s.notUntil = s.tried, 0, true, now.Add(growAgain)
		}
		return
	case s.rate < s.base*1.5:
		s.known = true
	}
	if s.tried = 0; now.Before(s.notUntil) || s.limit == s.most {
		return
	}
	s.tried, s.base, s.doubts = s.limit, s.rate, 0
	step := s.limit
	if s.known {
		step = max(s.limit/4, 1)
	}
	s.limit = min(s.limit+step, s.most)
}

// rank is the priority of a waiting read: by class, then by how much of a stream comes before it is
// needed, then in order of arrival.
type rank struct {
	class class
	due   int64
	seq   uint64
}

type class int8

const (
	demanded class = iota // a reader waits for it
	planned               // a reader will want it
	filling               // nothing waits for it
)

func (a rank) less(b rank) bool {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) < 0
}

// queue holds the reads that wait for a slot, for container/heap.
type queue []*read

var _ heap.Interface = (*queue)(nil)

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].rank.less(q[j].rank) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(*read)) }

func (q *queue) Pop() any {
	old := *q
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return r
}

// plans holds the blocks that readers have announced.
//
// A read is ranked by the nearest block that it overlaps. A read that overlaps none is demanded: its
// submitter waits for it.
type plans map[uint64]map[string][]span

// span is one of an object's blocks, which are sorted by begin. reach is the largest end of this
// span and all before it.
type span struct{ begin, end, reach, due int64 }

// spansOf groups blocks by object and sorts them.
func spansOf(blocks []storage.Block) map[string][]span {
	spans := make(map[string][]span)
	for _, b := range blocks {
		spans[b.Object.Path] = append(spans[b.Object.Path], span{begin: b.OffsetBytes, end: b.OffsetBytes + b.SizeBytes, due: max(b.DueBytes, 0)})
	}
	for _, of := range spans {
		slices.SortFunc(of, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
		reach := int64(0)
		for i := range of {
			reach = max(reach, of[i].end)
			of[i].reach = reach
		}
	}
	return spans
}

// set replaces a reader's blocks.
func (p plans) set(reader uint64, spans map[string][]span) {
	if len(spans) == 0 {
		delete(p, reader)
		return
	}
	p[reader] = spans
}

// class returns the class and the due bytes of a read of [begin, end).
func (p plans) class(path string, begin, end int64, fill bool) (class, int64) {
	nearest, found := int64(0), false
	for _, spans := range p {
		of := spans[path]
		// Spans before i begin before the read ends. They overlap it if they also end after it
		// begins.
		i, _ := slices.BinarySearchFunc(of, end, func(s span, end int64) int { return cmp.Compare(s.begin, end) })
		for i--; i >= 0 && of[i].reach > begin; i-- {
			if of[i].end > begin && (!found || of[i].due < nearest) {
				nearest, found = of[i].due, true
			}
		}
	}
	switch {
	case found && nearest > 0:
		return planned, nearest
	case found || !fill:
		return demanded, 0
	}
	return filling, 0
}
