package gather

import (
	"math"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
)

// maxStretchRecords limits the tables of tiny records.
const maxStretchRecords = 8192

// run is a place of a sequence: batches one after the other.
type run struct {
	batches []*batch
	next    uint64 // after the furthest record that was asked for
	stretch int64  // bytes of the next stretch
	streams bool   // the reader has read on
	// refused is where the reader has to be before memory is asked for once more: see readAhead.
	refused uint64
}

// at returns the batch that has a record, which must be in the run.
func (run *run) at(k uint64) *batch {
	for _, b := range run.batches {
		if k < b.end() {
			return b
		}
	}
	return nil
}

func (run *run) has(k uint64) bool {
	return len(run.batches) > 0 && k >= run.batches[0].from && k < run.end()
}

// end returns the record after the last one of a run that is not empty.
func (run *run) end() uint64 { return run.batches[len(run.batches)-1].end() }

// moveTo returns the run that has record k, and drops what is behind it; nil if there is no such
// record. If no run has it, the requested records are read: in the next stretch of the run that
// ends there or shortly before, or as the first of a new one.
func (r *Reader) moveTo(k uint64, n int) (*run, error) {
	i := slices.IndexFunc(r.runs, func(run *run) bool { return run.has(k) })
	if i < 0 {
		i = slices.IndexFunc(r.runs, func(run *run) bool { return run.end() == k })
	}
	if i < 0 {
		i = slices.IndexFunc(r.runs, func(run *run) bool { return r.overtaken(run, k) })
	}
	if i < 0 {
		return r.begin(k, n)
	}
	run := r.runs[i]
	r.runs = append(slices.Delete(r.runs, i, i+1), run)
	run.streams = run.streams || k+uint64(n) > run.next
	if !run.has(k) {
		from, size := run.end(), run.stretch
		for size > r.g.pool.BlockBytes && !r.makeRoom(size) {
			size /= 2
		}
		run.grow(r)
		r.extending = run
		planned, err := r.extend(run, from, size, max(r.planned(from), n), budget.Demand)
		r.extending = nil
		if !planned {
			if len(run.batches) == 0 { // they were dropped to make room
				r.runs = r.runs[:len(r.runs)-1]
			}
			return nil, err
		}
		switch {
		case run.end() == k:
			return r.moveTo(k, n)
		case !run.has(k):
			return r.begin(k, n) // further ahead than a stretch
		}
	}
	run.next = max(run.next, k+uint64(n))
	r.dropBehind(run, k)
	return run, nil
}

// overtaken reports whether record k is so shortly after the end of a run that its reader reads on
// there: the kernel makes reads ahead of a program in any order.
func (r *Reader) overtaken(run *run, k uint64) bool {
	end := run.end()
	return run.streams && end < k && k-end <= r.g.near && k-end < r.gap(end)
}

// passed reports whether record k is shortly before the records of a run.
func (r *Reader) passed(run *run, k uint64) bool {
	from := run.batches[0].from
	return k < from && from-k <= r.g.near
}

// gap returns how many records there are from k to the beginning of another run: those from there
// on are read already.
func (r *Reader) gap(k uint64) uint64 {
	n := uint64(math.MaxUint64)
	for _, run := range r.runs {
		if from := run.batches[0].from; from >= k {
			n = min(n, from-k)
		}
	}
	return n
}

// begin makes a run of records k … k+n-1 alone, since a sampling reader needs no more. The reader
// has jumped, unless it is shortly before a run: then reads that it wanted elsewhere and that have
// not begun are cancelled.
func (r *Reader) begin(k uint64, n int) (*run, error) {
	if !slices.ContainsFunc(r.runs, func(run *run) bool { return r.passed(run, k) }) {
		for _, run := range r.runs {
			r.dropAhead(run)
		}
	}
	for len(r.runs) >= maxRuns || len(r.runs) > 0 && r.held() > r.share()/2 {
		r.dropRun(0)
	}
	run := &run{next: k + uint64(n), stretch: r.g.ahead.FirstStretchBytes}
	if planned, err := r.extend(run, k, r.g.pool.BlockBytes, n, budget.Demand); !planned {
		return nil, err
	}
	r.runs = append(r.runs, run)
	return run, nil
}

// share returns what one of the readers may hold.
func (r *Reader) share() int64 { return r.g.pool.BudgetBytes() / max(r.g.open.Load(), 1) }

// How many stretches the reader's share holds. What a storage computes from larger pieces
// (window.Plan.Exact) is computed once per stretch if memory is short, so larger ones are better, and
// two: one is read while the other is delivered. There are never more of them: whether the storage
// finds what three or four have in common depends on how fast the reader is (measured: 14 to 35 %
// more reads of crops by a fast reader than by one that waits).
const (
	stretches         = 8
	exactStretches    = 2
	exactStretchBytes = 16 << 20 // or as much as suits the storage, if that is more
)

// exact reports whether records are computed from larger pieces.
func (r *Reader) exact() bool { return r.g.told != nil && r.g.told.Exact }

// stretchBytes returns the size that stretches grow to if memory permits.
func (r *Reader) stretchBytes() int64 {
	if r.exact() {
		return max(r.g.ahead.StretchBytes, exactStretchBytes)
	}
	return r.g.ahead.StretchBytes
}

// window returns what of the reader's share is used to read ahead.
func (r *Reader) window() int64 {
	if r.exact() {
		return min(r.share(), exactStretches*r.stretchBytes())
	}
	return r.share()
}

// grow doubles the next stretch, as long as the reader's share holds several of them.
func (run *run) grow(r *Reader) {
	run.stretch = min(2*run.stretch, r.stretchBytes(), max(r.part(), r.g.pool.BlockBytes))
}

// part returns what a stretch may take of the reader's share.
func (r *Reader) part() int64 {
	if r.exact() {
		return r.window() / exactStretches
	}
	return r.share() / stretches
}

// readAhead plans the next stretch if the reader reads on, and little enough is ahead of it. There
// has to be memory for all of the stretch: which records are planned together, and so what is read,
// then depends neither on when earlier reads end nor on how many records a call asks for. If there
// is none, it is tried again when the reader has come to the next batch.
func (r *Reader) readAhead(run *run, k uint64, n int) {
	if !run.streams {
		return
	}
	if r.exact() { // the share may be smaller than when the stretch grew: readers were opened since
		run.stretch = min(run.stretch, max(r.part(), r.g.pool.BlockBytes))
	}
	bytes, records := run.ahead(k + uint64(n))
	if bytes+run.stretch > r.reach() || records >= maxAheadRecords/int(max(r.g.open.Load(), 1)) {
		return
	}
	if r.held()+max(run.stretch, r.g.pool.BlockBytes) > r.window()/8*7 || k < run.refused {
		return
	}
	if !r.makeRoom(run.stretch) {
		run.refused = run.at(k).end()
		return
	}
	switch planned, err := r.extend(run, run.end(), run.stretch, r.planned(run.end()), budget.Prefetch); {
	case planned:
		run.grow(r)
	case err == budget.ErrNoRoom:
		run.refused = run.at(k).end()
	case err != nil:
		r.g.o.Note(err)
	}
}

// makeRoom reports whether there is memory for a stretch, after others have given up what they do
// not use: for its batches, and for as much in which records are read together.
func (r *Reader) makeRoom(bytes int64) bool {
	g := r.g
	blocks := bytes/g.pool.BlockBytes + 2 // records don't fill blocks
	if g.planConfig.MaxVectors != 1 {
		blocks = 2*blocks + 1
	}
	n := blocks * g.pool.BlockBytes
	if g.pool.RoomBytes() >= n {
		return true
	}
	g.o.Ask()
	g.sweep()
	g.reclaim(r, func() bool { return g.pool.RoomBytes() >= n }, budget.Prefetch)
	return g.pool.RoomBytes() >= n
}

// reach returns how far to read ahead: as far as suits the storage or, if records come from a
// service, as far as it was told.
func (r *Reader) reach() int64 {
	if r.exact() {
		return r.window()
	}
	if r.walker == nil || r.g.told.Chunks {
		return r.g.ahead.Bytes
	}
	return r.walker.Reach(r.g.ahead.Bytes)
}

// planned returns how many records may be read together from record k on: a storage that is told
// what will be read treats other reads as urgent.
func (r *Reader) planned(k uint64) int {
	return int(min(maxStretchRecords, r.walker.Reached(k)-k))
}

// ahead returns how much of the run is at or after record k.
func (run *run) ahead(k uint64) (bytes int64, records int) {
	for _, b := range slices.Backward(run.batches) {
		if b.end() <= k {
			break
		}
		i := int(max(k, b.from) - b.from)
		bytes += b.used() - b.offs[i]
		records += b.records() - i
	}
	return bytes, records
}

// extend plans and starts reads of the records from k on, where the run ends: up to that many bytes
// and records, or less if there is no memory. A demanded call means that a reader waits for the
// first batch.
func (r *Reader) extend(run *run, k uint64, bytes int64, records int, u budget.Urgency) (planned bool, err error) {
	g := r.g
	if k >= r.seq.Len() {
		return false, nil
	}
	records = int(min(uint64(records), r.gap(k)))
	p := <-g.planners
	defer func() { p.reset(); g.planners <- p }()
	err = p.fill(g.o.Index, r.seq, k, bytes, records, func(from uint64, n int64) (*batch, error) {
		memory, err := g.take(r, n, u)
		if err != nil {
			return nil, err
		}
		u = budget.Prefetch
		return g.newBatch(memory, from), nil
	})
	if len(p.batches) == 0 {
		return false, err
	}
	pl, err := p.planner.Plan(p.request)
	if err != nil {
		for _, b := range p.batches {
			g.drop(b)
		}
		return false, err
	}
	if g.o.Dry == nil {
		p.addNewlines()
	}
	p.expect(pl, g.o.Verifier)
	announced := r.announces(run)
	if announced {
		r.walker.Submitting(k, p.batches[len(p.batches)-1].end())
	}
	g.start(p, pl, len(p.batches)+1)
	for _, b := range p.batches {
		b.begun()
	}
	run.batches = append(run.batches, p.batches...)
	if announced {
		r.walker.Announce()
	}
	return true, nil
}

// leftAfter is how often other runs are extended before a run counts as abandoned.
const leftAfter = 4

// announces reports whether the records of a run are announced as they are submitted
// (window.Plan.Exact). Those of one run are, and only if the reader reads on in it.
func (r *Reader) announces(run *run) bool {
	if r.walker == nil || !r.g.told.Exact || !run.streams {
		return false
	}
	if r.announced != run {
		if r.others++; r.others < leftAfter && slices.Contains(r.runs, r.announced) {
			return false
		}
		r.announced = run
	}
	r.others = 0
	return true
}

// readAgain reads one record once more, to its place. The caller pins the batch.
func (r *Reader) readAgain(b *batch, i int, k uint64) {
	g := r.g
	r.mu.Lock()
	defer r.mu.Unlock()
	if x, bad := b.fault(i); !bad || x.lasting || b.wait() != nil {
		return // another call does
	}
	p := <-g.planners
	defer func() { p.reset(); g.planners <- p }()
	if r.seq.Records(k, p.numbers[:1]) != 1 {
		return
	}
	g.o.Index.Extents(p.numbers[:1], p.extents[:1])
	p.epoch = chunkmap.EpochOf(r.seq)
	p.place(b, i, p.extents[0])
	pl, err := p.planner.Plan(p.request)
	if err != nil {
		return // it could be planned before
	}
	b.begin()
	b.forgive(i)
	b.expect(i, int32(len(pl.Sources(0))), g.o.Verifier != nil)
	g.start(p, pl, 0)
	b.begun()
}

// dropBehind drops the batches before record k, where the reader is, except the last of them:
// replies are requested out of order.
func (r *Reader) dropBehind(run *run, k uint64) {
	n := 0
	for n < len(run.batches) && run.batches[n].end() <= k {
		n++
	}
	kept := min(keptBehindBytes, r.share()/8)
	for n > 0 && kept > 0 {
		n--
		kept -= run.batches[n].used()
	}
	r.dropFirst(run, n)
}

// dropAhead drops batches from the first one on that has not arrived and that the reader has not
// reached.
func (r *Reader) dropAhead(run *run) {
	n := slices.IndexFunc(run.batches, func(b *batch) bool { return b.from >= run.next && b.pending.Load() > 0 })
	if n <= 0 {
		return // a run is never empty: its first batch was asked for
	}
	for _, b := range run.batches[n:] {
		r.drop(run, b)
	}
	run.batches = slices.Delete(run.batches, n, len(run.batches))
}

func (r *Reader) dropFirst(run *run, n int) {
	if n <= 0 {
		return
	}
	for _, b := range run.batches[:n] {
		r.drop(run, b)
	}
	run.batches = slices.Delete(run.batches, 0, n)
}

func (r *Reader) drop(run *run, b *batch) {
	if b.from >= run.next {
		r.g.counts.dropped.Add(uint64(b.used()))
	}
	r.g.drop(b)
}

func (r *Reader) dropRun(i int) {
	run := r.runs[i]
	r.runs = slices.Delete(r.runs, i, i+1)
	for _, b := range run.batches {
		r.drop(run, b)
	}
}

func (r *Reader) dropAll() {
	for len(r.runs) > 0 {
		r.dropRun(0)
	}
}

// dropOthers drops all but the run used last.
func (r *Reader) dropOthers() {
	for len(r.runs) > 1 {
		r.dropRun(0)
	}
}

// dropPassed drops the batches of the run that is being extended for a reader that waits at its end.
// The run is then empty until it is extended.
func (r *Reader) dropPassed() {
	if r.extending != nil {
		r.dropFirst(r.extending, len(r.extending.batches))
	}
}

// giveUp makes room for another reader: it drops what was passed, and what is ahead beyond a
// reader's share.
func (r *Reader) giveUp() {
	r.dropOthers()
	for _, run := range r.runs {
		n := slices.IndexFunc(run.batches, func(b *batch) bool { return run.next <= b.end() })
		r.dropFirst(run, n)
		for len(run.batches) > 1 && r.held() > r.share() {
			last := len(run.batches) - 1
			r.drop(run, run.batches[last])
			run.batches = run.batches[:last]
		}
	}
}

// held returns the memory of all runs.
func (r *Reader) held() int64 {
	n := int64(0)
	for _, run := range r.runs {
		for _, b := range run.batches {
			n += int64(len(b.block.Mem))
		}
	}
	return n
}
