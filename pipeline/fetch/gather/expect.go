package gather

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/loan"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Bounds of what the storage is told to expect: records of a reader ahead of what has been
// submitted, and those that are told of in one call of Lend, which a reader waits for.
const (
	expectRecords = 4096
	expectAtOnce  = 256
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
	if k != x.from || end > x.end {
		x.forget()
		x.run, x.from, x.end = run, end, end
		return
	}
	x.to.Passed(x.reader, int(end-k))
	x.from = end
}

// more tells of some records more.
func (x *expectation) more(r *Reader, run *run) {
	if !x.follows(r, run) {
		return
	}
	if x.from == x.end && x.from != run.end() {
		x.from, x.end = run.end(), run.end()
	}
	n := min(x.from+expectRecords, r.seq.Len()) - x.end
	if n > r.seq.Len() || n < expectAtOnce && x.end+n < r.seq.Len() {
		return
	}
	n = min(n, expectAtOnce)
	m := r.seq.Records(x.end, x.numbers[:n])
	r.g.index.Extents(x.numbers[:m], x.extents[:m])
	epoch := loan.EpochOf(r.seq)
	for i, e := range x.extents[:m] {
		x.ranges[i] = storage.Range{Object: r.g.index.Shard(e.Shard).Object, OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes, Epoch: epoch}
	}
	x.end += uint64(x.to.Expect(x.reader, x.ranges[:m]))
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
