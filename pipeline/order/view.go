package order

import (
	"fmt"
	"slices"

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

// table describes how positions are assigned to workers. The product of workers and batch fits 64
// bits: workers is at most 2^16, batch at most 2^32 or positions.
type table struct {
	workers    uint64
	batch      uint64
	contiguous bool
	positions  uint64
}

// share is the assignment of one position: it is record number k of worker w, and w also has the
// run-1 positions after it.
type share struct {
	w, k, run uint64
}

// count returns the number of positions of worker w.
func (t *table) count(w uint64) uint64 { return t.countBelow(w, t.positions) }

// countBelow returns the number of worker w's positions below p.
func (t *table) countBelow(w, p uint64) uint64 {
	if t.contiguous {
		first, size := t.stretch(w)
		return min(size, p-min(p, first))
	}
	cycle := t.workers * t.batch
	rest := p % cycle
	return p/cycle*t.batch + min(t.batch, rest-min(rest, w*t.batch))
}

// stretch returns the positions of worker w in a contiguous deal: the first, and their number.
func (t *table) stretch(w uint64) (first, size uint64) {
	each, more := t.positions/t.workers, t.positions%t.workers
	size = each
	if w < more {
		size++
	}
	return w*each + min(w, more), size
}

// position returns the position of worker w's record k, which must exist.
func (t *table) position(w, k uint64) uint64 {
	if t.contiguous {
		first, _ := t.stretch(w)
		return first + k
	}
	return (k/t.batch*t.workers+w)*t.batch + k%t.batch
}

// at returns the share of position p < positions.
func (t *table) at(p uint64) share {
	if t.contiguous {
		each, more := t.positions/t.workers, t.positions%t.workers
		w := p / (each + 1)
		if w >= more {
			w = more + (p-more*(each+1))/max(each, 1)
		}
		first, size := t.stretch(w)
		return share{w: w, k: p - first, run: first + size - p}
	}
	turn, rest := p/t.batch, p%t.batch
	return share{w: turn % t.workers, k: turn/t.workers*t.batch + rest, run: min(t.batch-rest, t.positions-p)}
}

// after returns the share of position p, which directly follows the run of s.
func (t *table) after(s share, p uint64) share {
	s.k += s.run
	s.w++
	if t.contiguous {
		_, size := t.stretch(s.w)
		return share{w: s.w, run: size}
	}
	if s.w == t.workers {
		s.w = 0
	} else {
		s.k -= t.batch
	}
	s.run = min(t.batch, t.positions-p)
	return s
}

// alone turns a deal to a single worker into one batch: an equal deal with longer runs.
func (t table) alone() table {
	if t.workers == 1 {
		t.batch = max(1, t.positions)
	}
	return t
}

// dealt returns the table for dealing remaining positions, after the tail rule.
func dealt(remaining uint64, d spec.Assignment) table {
	t := table{workers: d.Workers, batch: d.Batch, contiguous: d.Dealing == spec.DealContiguous, positions: remaining}
	round := t.workers
	if !t.contiguous {
		round *= t.batch
	}
	switch d.Tail {
	case spec.TailDrop:
		t.positions -= remaining % round
	case spec.TailPad:
		t.positions = (remaining + round - 1) / round * round
	}
	return t.alone()
}

// checkDeal rejects deals that are impossible, or that a checkpoint can't represent.
func checkDeal(o spec.Order, d spec.Assignment) error {
	switch {
	case d.Workers < 1 || d.Workers > spec.MaxWorkers:
		return fmt.Errorf("order: workers (%d) must be between 1 and %d", d.Workers, spec.MaxWorkers)
	case d.Batch < 1 || d.Batch > maxOrderBatch:
		return fmt.Errorf("order: batch (%d) must be between 1 and %d", d.Batch, uint64(maxOrderBatch))
	case o.Groups > 1 && d.Batch != o.Batch:
		return fmt.Errorf("order: batch (%d) must be the order's batch (%d) when groups is above 1", d.Batch, o.Batch)
	}
	switch d.Dealing {
	case spec.DealInterleaved, spec.DealContiguous:
	default:
		return fmt.Errorf("order: unknown deal %q", d.Dealing)
	}
	switch d.Tail {
	case spec.TailKeep, spec.TailDrop, spec.TailPad:
	default:
		return fmt.Errorf("order: unknown tail %q", d.Tail)
	}
	if o.Groups > 1 && d.Dealing == spec.DealContiguous && d.Tail != spec.TailKeep {
		// See Given: with groups, the batch of an entry is fixed.
		return fmt.Errorf("order: tail %s with the deal contiguous could not be resumed when groups is above 1: choose tail keep, or groups 1", d.Tail)
	}
	return nil
}

// Done is one application of the resume rule: len(Consumed) workers took Consumed[w] records each,
// assigned in batches of Batch by Dealing. An empty Dealing means interleaved. With contiguous
// dealing the batch has no effect, and Batch is 1. In an order of several groups, Batch is the
// order's batch.
type Done struct {
	Batch    uint64
	Dealing  spec.Dealing
	Consumed []uint64
}

// Taken returns the number of records that all workers took together.
func (d Done) Taken() uint64 {
	var n uint64
	for _, c := range d.Consumed {
		n += c
	}
	return n
}

// Check returns an error if d is impossible for remaining records.
func (d Done) Check(remaining uint64, o spec.Order) error {
	if d.Dealing != "" && d.Dealing != spec.DealInterleaved && d.Dealing != spec.DealContiguous {
		return fmt.Errorf("deal (%q) must be %s or %s", d.Dealing, spec.DealInterleaved, spec.DealContiguous)
	}
	workers := uint64(len(d.Consumed))
	if workers < 1 || workers > spec.MaxWorkers {
		return fmt.Errorf("consumed has %d numbers, but there are between 1 and %d workers", workers, spec.MaxWorkers)
	}
	switch {
	case o.Groups > 1 && d.Batch != o.Batch:
		return fmt.Errorf("batch (%d) must be the order's batch (%d), because the order has groups", d.Batch, o.Batch)
	case o.Groups <= 1 && d.Dealing == spec.DealContiguous && d.Batch != 1:
		return fmt.Errorf("batch (%d) must be 1 with the deal contiguous", d.Batch)
	case d.Batch < 1 || d.Batch > MaxRecords:
		return fmt.Errorf("batch (%d) must be between 1 and %d", d.Batch, uint64(MaxRecords))
	}
	t := d.table(remaining)
	for w, c := range d.Consumed {
		if had := t.count(uint64(w)); c > had {
			return fmt.Errorf("worker %d of %d took %d records, but was dealt %d", w, workers, c, had)
		}
	}
	return nil
}

// table returns how remaining positions were dealt. A batch larger than remaining deals like one of
// exactly that size.
func (d Done) table(remaining uint64) table {
	t := table{
		workers: uint64(len(d.Consumed)), batch: max(1, min(d.Batch, remaining)),
		contiguous: d.Dealing == spec.DealContiguous, positions: remaining,
	}
	return t.alone()
}

// prefix reports whether the workers took exactly the first records.
func (d Done) prefix(remaining uint64) bool {
	t, taken := d.table(remaining), d.Taken()
	for w, c := range d.Consumed {
		if c != t.countBelow(uint64(w), taken) {
			return false
		}
	}
	return true
}

// Simplify returns the canonical form of done. total is T.
//
//   - Entries of zeros are dropped.
//   - An entry that took a prefix becomes {batch 1, [n]} (with groups > 1: the order's
//     batch).
//   - Two such entries in a row become one.
//
// For an impossible entry it returns an error with the entry's number, counted from 1. The result
// shares no memory with done.
func Simplify(total uint64, o spec.Order, done []Done) ([]Done, error) {
	remaining := total
	var simple []Done
	joins := false // the last entry of simple is a prefix
	for i, d := range done {
		if err := d.Check(remaining, o); err != nil {
			return nil, fmt.Errorf("entry %d of done: %w", i+1, err)
		}
		taken := d.Taken()
		switch prefix := d.prefix(remaining); {
		case taken == 0:
		case prefix && joins:
			simple[len(simple)-1].Consumed[0] += taken
		case prefix:
			simple, joins = append(simple, First(taken, o)), true
		default:
			d.Consumed = slices.Clone(d.Consumed)
			if d.Dealing == "" {
				d.Dealing = spec.DealInterleaved
			}
			simple, joins = append(simple, d), false
		}
		remaining -= taken
	}
	return simple, nil
}

// First returns the entry that takes the first n of the remaining records.
func First(n uint64, o spec.Order) Done {
	d := Done{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{n}}
	if o.Groups > 1 {
		d.Batch = o.Batch
	}
	return d
}

// Given returns the entry for workers that took consumed records each, after remaining records were
// assigned to them by d. The entry keeps consumed.
//
// An entry has no field for the tail rule. With contiguous dealing, if the number of records is not
// a multiple of the number of workers, the tail rule moves the borders between workers. Given
// represents that case as an interleaved deal with one batch per worker.
func Given(o spec.Order, remaining uint64, d spec.Assignment, consumed []uint64) Done {
	entry := Done{Batch: d.Batch, Dealing: spec.DealInterleaved, Consumed: consumed}
	if d.Dealing != spec.DealContiguous {
		return entry
	}
	if t := dealt(remaining, d); t.positions != remaining && o.Groups <= 1 {
		entry.Batch = max(1, t.positions/t.workers)
		return entry
	}
	entry.Dealing = spec.DealContiguous
	if o.Groups <= 1 {
		entry.Batch = 1
	}
	return entry
}
