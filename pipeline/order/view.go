package order

import (
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// View is G′ assigned to workers. It is logically immutable, and safe for concurrent use. Its
// Memory caches pages of G′ and the cursors that made them, so that readers that go through a view
// together compute it once.
type View struct {
	epoch     *Epoch
	levels    []level
	deal      spec.Assignment
	remaining uint64
	table     table
	memory    *Memory
	rest      *sequence // G′
	whole     *sequence // G: for padding, and if nothing was taken
}

// NewView applies done to e in turn and assigns the remainder to workers. For an impossible entry
// (a worker that took more than it had) it returns an error with the entry's number. The view gets
// its own Memory of the default size.
func NewView(e *Epoch, done []Done, deal spec.Assignment) (*View, error) {
	return NewMemory(0).View(e, done, deal)
}

func dealView(e *Epoch, done []Done, deal spec.Assignment, m *Memory) (*View, error) {
	if err := checkDeal(e.order, deal); err != nil {
		return nil, err
	}
	simple, err := Simplify(e.total, e.order, done)
	if err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	v := &View{epoch: e, deal: deal, remaining: e.total, memory: m}
	for _, d := range simple {
		l := newLevel(v.remaining, d)
		v.levels = append(v.levels, l)
		v.remaining = l.left
	}
	v.table = dealt(v.remaining, deal)
	v.whole = &sequence{memory: m, epoch: e}
	v.rest = v.whole
	if len(v.levels) > 0 {
		v.rest = &sequence{memory: m, epoch: e, levels: v.levels}
	}
	return v, nil
}

// Remaining returns |G′|, the number of records that are left, before the tail rule.
func (v *View) Remaining() uint64 { return v.remaining }

// Dealt returns the number of records of all workers together, after the tail rule.
func (v *View) Dealt() uint64 { return v.table.positions }

// Deal returns NewView's argument deal.
func (v *View) Deal() spec.Assignment { return v.deal }

// Count returns the number of records of worker w's stream, after the tail rule.
func (v *View) Count(w uint64) uint64 {
	v.check(w)
	return v.table.count(w)
}

// Own returns Count without padding: the number of worker w's records, from its first on, that
// belong to G′. Padding is never counted as consumed.
func (v *View) Own(w uint64) uint64 {
	v.check(w)
	return v.table.countBelow(w, min(v.remaining, v.table.positions))
}

// Owner returns the worker that gets index j of G′ or its padding, and the index of that record in
// the worker's stream. j must be below Dealt.
func (v *View) Owner(j uint64) (w, k uint64) {
	if j >= v.table.positions {
		panic(fmt.Sprintf("order: index %d is past the %d records that were dealt", j, v.table.positions))
	}
	s := v.table.at(j)
	return s.w, s.k
}

// CountBelow returns the number of worker w's records below index j ≤ Dealt of G′.
func (v *View) CountBelow(w, j uint64) uint64 {
	v.check(w)
	return v.table.countBelow(w, j)
}

func (v *View) check(w uint64) {
	if w >= v.deal.Workers {
		panic(fmt.Sprintf("order: there is no worker %d of %d", w, v.deal.Workers))
	}
}

// Records fills dst with the numbers of records k, k+1, … of worker w's stream, and returns how
// many it filled. It does not allocate while the pages are cached.
func (v *View) Records(w, k uint64, dst []uint64) int {
	count := v.Count(w)
	if k >= count {
		return 0
	}
	dst = dst[:min(uint64(len(dst)), count-k)]
	var at span
	j := v.table.position(w, k)
	run := v.table.at(j).run
	for n := 0; n < len(dst); {
		if run == 0 { // only an interleaved deal has more than one run
			j += (v.table.workers - 1) * v.table.batch
			run = v.table.batch
		}
		if j-at.begin >= uint64(len(at.records)) { // wraps below begin
			at = v.span(j)
		}
		m := min(run, uint64(len(dst)-n))
		m = uint64(copy(dst[n:n+int(m)], at.records[j-at.begin:]))
		n, j, run = n+int(m), j+m, run-m
	}
	return len(dst)
}

// span is a run of dealt records, the first of them at index begin.
type span struct {
	begin   uint64
	records []uint64
}

// span returns a span that contains index j < Dealt. Padding repeats the records of G.
func (v *View) span(j uint64) span {
	if j < v.remaining {
		page := j / pageRecords
		return span{begin: page * pageRecords, records: v.rest.records(page)}
	}
	p := (j - v.remaining) % v.epoch.total
	page := p / pageRecords
	records := v.whole.records(page)
	skip := p - page*pageRecords
	return span{begin: j, records: records[skip:]}
}

// sweepRecords is the size of Sweep's blocks: large enough to make the cost per block negligible,
// small enough for the L1 cache.
const sweepRecords = 2048

// Sweep calls visit with the records at indices from … to-1 of G′, in order and in blocks. to ≤
// Dealt; padding (index j ≥ Remaining) is included. It ends early if visit returns false. It does
// not evict pages that readers use from the cache. The slice records is valid until visit returns.
//
// Sweeps of different ranges may run concurrently. If all parts of the epoch's Prepare have run,
// starting one costs a replay of up to Stride positions; if not, of all positions not visited yet.
func (v *View) Sweep(from, to uint64, visit func(j uint64, records []uint64) bool) {
	if to > v.table.positions {
		panic(fmt.Sprintf("order: a sweep to index %d is past the %d records that were dealt", to, v.table.positions))
	}
	defer v.Hold()()
	block := make([]uint64, sweepRecords)
	j, end := from, min(v.remaining, to)
	if j < end {
		left := newRest(v.epoch, v.levels)
		for left.seek(j); j < end; {
			n := min(sweepRecords, end-j)
			left.fill(block[:n])
			if !visit(j, block[:n]) {
				return
			}
			j += n
		}
	}
	if j >= to {
		return
	}
	for cursor := v.epoch.Cursor((j - v.remaining) % v.epoch.total); j < to; {
		n := cursor.Next(block[:min(sweepRecords, to-j)])
		if n == 0 {
			cursor.Seek(0)
			continue
		}
		if !visit(j, block[:n]) {
			return
		}
		j += uint64(n)
	}
}

// Epoch returns the epoch that the view was made from.
func (v *View) Epoch() *Epoch { return v.epoch }

// Hold prevents the epoch's computed states from being dropped until release is called, which must
// happen exactly once. A caller that sweeps the view in several ranges should hold it meanwhile.
func (v *View) Hold() (release func()) {
	v.memory.mu.Lock()
	defer v.memory.mu.Unlock()
	v.memory.use(v.epoch)
	return v.epoch.Hold()
}
