package window

import (
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
)

// Wanted counts, for each piece, how many records readers will need soon. All methods except Bound
// may be called concurrently.
type Wanted struct {
	table  *chunkmap.Table
	counts []atomic.Int32

	// most limits how many pieces are wanted at a time, by all readers: what a decoder stores as it
	// passes must not fill the memory before what comes next has arrived. 0: as many as readers
	// look ahead.
	most   int64
	wanted atomic.Int64 // now
}

// NewCounts returns a Wanted for the pieces of a table.
func NewCounts(table *chunkmap.Table) *Wanted {
	return &Wanted{table: table, counts: make([]atomic.Int32, table.Len())}
}

// Bound limits how many pieces are wanted at a time; 0 for as many as readers look ahead. It is
// called before there are readers.
func (c *Wanted) Bound(pieces int64) { c.most = pieces }

// Wanted reports whether a reader will need the piece soon.
func (c *Wanted) Wanted(piece int) bool { return c.counts[piece].Load() > 0 }

// Bytes returns the memory of the counts.
func (c *Wanted) Bytes() int64 { return int64(len(c.counts)) * 4 }

// lookStep is the maximum number of records that are counted at a time.
const lookStep = 1024

// step returns how many records are counted at a time.
func (c *Wanted) step() uint64 {
	if c.most == 0 {
		return lookStep
	}
	return uint64(max(min(c.most/4, lookStep), 1))
}

// full reports whether no more pieces may be wanted.
func (c *Wanted) full() bool { return c.most > 0 && c.wanted.Load() >= c.most }

// add adds n for each of the records.
func (c *Wanted) add(records []uint64, n int32) {
	for _, record := range records {
		if now := c.counts[c.table.Of(record)].Add(n); now == max(n, 0) {
			c.wanted.Add(int64(n)) // the first, or the last
		}
	}
}

// lookahead is the stretch of a sequence that a reader has counted.
type lookahead struct{ from, to uint64 }

// lookAhead moves the stretch to record k: records before it are no longer wanted, and those that
// follow are.
func (r *Reader) lookAhead(k uint64, readers int) {
	c := r.counts
	if c == nil {
		return
	}
	l, step := &r.look, c.step()
	if k+r.near < l.from || k > l.to {
		r.count(l.from, l.to, -1)
		l.from, l.to = k, k
	}
	if k >= l.from+step {
		r.count(l.from, k, -1)
		l.from = k
	}
	// Workers that read one epoch together should each look equally far ahead in G.
	depth := max(uint64(r.lookRecords)/uint64(max(readers, 1)), lookStep)
	to := min(k+depth, r.seq.Len())
	if to < l.to+step && !(to > l.to && to == r.seq.Len()) {
		return
	}
	if c.most == 0 {
		r.count(l.to, to, 1)
		l.to = to
	}
	for l.to < to && (!c.full() || l.to <= k) {
		end := min(l.to+step, to)
		r.count(l.to, end, 1)
		l.to = end
	}
}

// count adds n for each record from … to-1.
func (r *Reader) count(from, to uint64, n int32) {
	for from < to {
		m := r.seq.Records(from, r.scratch(to-from))
		if m == 0 {
			return
		}
		r.counts.add(r.buf[:m], n)
		from += uint64(m)
	}
}
