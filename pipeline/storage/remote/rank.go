package remote

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
