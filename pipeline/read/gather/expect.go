package gather

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// expectRecords is how many records of a reader are announced beyond what has been submitted.
const expectRecords = 4096

// A reader waits while the storage is told, so a call announces at most expectAtOnce records, or
// expectTimes as many as it submits if that is more.
const (
	expectAtOnce = 256
	expectTimes  = 2
)

// expectation is what the storage expects of a reader's sequence. It follows the run that the
// reader reads on; what is read elsewhere meanwhile is not announced.
type expectation struct {
	to      storage.Expecter // nil: the storage is not one
	reader  uint64
	run     *run
	others  int    // how often other runs were extended since run was
	from    uint64 // the first expected record
	end     uint64 // after the last one
	numbers [expectAtOnce]uint64
	extents [expectAtOnce]catalog.Extent
	ranges  [expectAtOnce]storage.Range
}

func newExpectation(to storage.Expecter) *expectation {
	if to == nil {
		return nil
	}
	return &expectation{to: to, reader: storage.NewReaderID()}
}

// leftAfter is how often other runs are extended before a run counts as abandoned.
const leftAfter = 8

// follows reports whether run is the one that is expected. Only one run is, and only if the reader
// reads on.
func (x *expectation) follows(r *Reader, run *run) bool {
	if x == nil || !run.streams {
		return false
	}
	if x.run == run {
		x.others = 0
		return true
	}
	if x.others++; x.others < leftAfter && slices.Contains(r.runs, x.run) {
		return false
	}
	x.forget()
	x.run = run
	return true
}

// passing is called when records k … end-1 of a run are about to be submitted.
func (x *expectation) passing(r *Reader, run *run, k, end uint64) {
	if !x.follows(r, run) {
		return
	}
	if k != x.from {
		x.forget()
		x.run, x.from, x.end = run, end, end
		return
	}
	x.to.Passed(x.reader, int(min(end, x.end)-k))
	x.from, x.end = end, max(end, x.end)
}

// more announces more records, depending on how many have been submitted.
func (x *expectation) more(r *Reader, run *run, submitted uint64) {
	if !x.follows(r, run) {
		return
	}
	until := min(x.from+expectRecords, x.end+max(expectTimes*submitted, expectAtOnce), r.seq.Len())
	if until < x.end+expectAtOnce && until < r.seq.Len() {
		return
	}
	epoch := pinned.EpochOf(r.seq)
	for x.end < until {
		m := r.seq.Records(x.end, x.numbers[:min(until-x.end, expectAtOnce)])
		r.g.o.Index.Extents(x.numbers[:m], x.extents[:m])
		for i, e := range x.extents[:m] {
			x.ranges[i] = storage.Range{Object: r.g.o.Index.Shard(e.Shard).Object, OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes, Epoch: epoch}
		}
		n := x.to.Expect(x.reader, x.ranges[:m])
		x.end += uint64(n)
		if n < expectAtOnce {
			return
		}
	}
}

// forget withdraws all announcements.
func (x *expectation) forget() {
	if x == nil {
		return
	}
	if x.run != nil {
		x.to.Forget(x.reader)
	}
	x.run, x.others, x.from, x.end = nil, 0, 0, 0
}
