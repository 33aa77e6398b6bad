package gather

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// expectRecords is how many records of a reader are expected ahead of what has been submitted.
const expectRecords = 4096

// A reader waits while the storage is told, so a call tells of so many records at most, or of twice
// as many as it submits.
const (
	expectAtOnce = 256
	expectTimes  = 2
)

// expectation is what of a reader's sequence the storage expects. It follows the run that the
// reader reads on; what is read elsewhere meanwhile is not expected.
type expectation struct {
	to      storage.Expecter // nil: the storage does not want to know
	reader  uint64
	run     *run
	others  int    // how often others were extended since run was
	from    uint64 // the first record that is expected
	end     uint64 // behind the last one
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

// leftAfter is how often other runs are extended before a run is taken for one that is left.
const leftAfter = 8

// follows says whether it is a run that is expected. Only what is read on is, and only one run.
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

// passing says that records of a run are about to be submitted, up to record end.
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

// more tells of some records more, where so many have been submitted.
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
		r.g.index.Extents(x.numbers[:m], x.extents[:m])
		for i, e := range x.extents[:m] {
			x.ranges[i] = storage.Range{Object: r.g.index.Shard(e.Shard).Object, OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes, Epoch: epoch}
		}
		n := x.to.Expect(x.reader, x.ranges[:m])
		x.end += uint64(n)
		if n < expectAtOnce {
			return
		}
	}
}

// forget ends what is expected.
func (x *expectation) forget() {
	if x == nil {
		return
	}
	if x.run != nil {
		x.to.Forget(x.reader)
	}
	x.run, x.others, x.from, x.end = nil, 0, 0, 0
}
