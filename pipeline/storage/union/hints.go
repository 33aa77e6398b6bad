package union

import (
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// planner passes plans on to the sources that have a Planner. Plans for other sources are dropped.
type planner struct{ *Storage }

// Plan implements storage.Planner. Every source gets a plan, even if it is empty: a plan replaces
// the reader's previous one.
func (p planner) Plan(reader uint64, wants []storage.Want) {
	of := make([][]storage.Want, len(p.sources))
	for _, w := range wants {
		var i int
		if i, w.Object = p.below(w.Object); i >= 0 {
			of[i] = append(of[i], w)
		}
	}
	for i := range p.sources {
		if to := p.caps[i].Planner; to != nil {
			to.Plan(reader, of[i])
		}
	}
}

// Done implements storage.Planner.
func (p planner) Done(reader uint64, o storage.Object, offsetBytes, sizeBytes int64) {
	i, below := p.below(o)
	if i < 0 {
		return
	}
	if to := p.caps[i].Planner; to != nil {
		to.Done(reader, below, offsetBytes, sizeBytes)
	}
}

// Forget implements storage.Planner.
func (p planner) Forget(reader uint64) {
	for i := range p.sources {
		if to := p.caps[i].Planner; to != nil {
			to.Forget(reader)
		}
	}
}

// keeper is for sources whose Planners are all Keepers.
type keeper struct{ *Storage }

// RoomBytes returns the least room of any source: caches on one disk share it.
func (k keeper) RoomBytes() int64 {
	least, any := int64(0), false
	for i := range k.sources {
		if to := k.caps[i].Keeper; to != nil {
			if room := to.RoomBytes(); !any || room < least {
				least, any = room, true
			}
		}
	}
	return least
}

// SetShare implements storage.Keeper: all open data may be of one source.
func (k keeper) SetShare(bytes int64) {
	for i := range k.sources {
		if to := k.caps[i].Keeper; to != nil {
			to.SetShare(bytes)
		}
	}
}

// expecter passes expectations on to the sources that have an Expecter. For the others there is
// nothing to note.
type expecter struct {
	of      *Storage
	mu      sync.Mutex
	readers map[uint64]*expected
}

// expected is the sources of the ranges that a reader expects, in its order. It is used by one
// goroutine at a time, like the reader.
type expected struct {
	sources []uint8 // the first passed ones are no longer expected; noSource: not in any source
	passed  int
	ranges  []storage.Range // scratch
	counts  []int           // scratch, by source
}

// noSource is for objects of no source. A mixture has at most 128 sources.
const noSource = 255

func newExpecter(s *Storage) *expecter { return &expecter{of: s, readers: map[uint64]*expected{}} }

// Expect implements storage.Expecter. Consecutive ranges of one source are passed on together. If
// a source notes only some, nothing after them is passed on, so each source gets its ranges once
// and in order.
func (x *expecter) Expect(reader uint64, next []storage.Range) int {
	r := x.reader(reader)
	for begin := 0; begin < len(next); {
		source, _ := x.of.of(next[begin].Object.Path)
		r.ranges = r.ranges[:0]
		for end := begin; end < len(next); end++ {
			i, o := x.of.below(next[end].Object)
			if i != source {
				break
			}
			y := next[end]
			y.Object = o
			r.ranges = append(r.ranges, y)
		}
		noted, mark := len(r.ranges), uint8(noSource)
		if source >= 0 {
			mark = uint8(source)
			if to := x.of.caps[source].Expecter; to != nil {
				noted = to.Expect(reader, r.ranges)
			}
		}
		for range noted {
			r.sources = append(r.sources, mark)
		}
		begin += noted
		if noted < len(r.ranges) {
			return begin
		}
	}
	return len(next)
}

// reader returns what a reader expects.
func (x *expecter) reader(reader uint64) *expected {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.readers[reader]
	if r == nil {
		r = &expected{counts: make([]int, len(x.of.sources))}
		x.readers[reader] = r
	}
	return r
}

// Passed implements storage.Expecter.
func (x *expecter) Passed(reader uint64, n int) {
	x.mu.Lock()
	r := x.readers[reader]
	x.mu.Unlock()
	if r == nil {
		return
	}
	n = min(n, len(r.sources)-r.passed)
	clear(r.counts)
	for _, i := range r.sources[r.passed : r.passed+n] {
		if i != noSource {
			r.counts[i]++
		}
	}
	for i, count := range r.counts {
		if to := x.of.caps[i].Expecter; to != nil && count > 0 {
			to.Passed(reader, count)
		}
	}
	if r.passed += n; 2*r.passed >= len(r.sources) {
		r.sources = r.sources[:copy(r.sources, r.sources[r.passed:])]
		r.passed = 0
	}
}

// Forget implements storage.Expecter.
func (x *expecter) Forget(reader uint64) {
	x.mu.Lock()
	delete(x.readers, reader)
	x.mu.Unlock()
	for i := range x.of.sources {
		if to := x.of.caps[i].Expecter; to != nil {
			to.Forget(reader)
		}
	}
}
