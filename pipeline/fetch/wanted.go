package fetch

import "sync/atomic"

// wanted counts, for each piece, the records that readers will come to soon.
// A decoder on its way through a shard keeps what is wanted, so that the shard
// need not be decoded again for it. It is nil where no shard is compressed.
type wanted []atomic.Int32

// lookahead is the stretch of a sequence that a reader has counted in wanted.
// It is guarded by Reader.mu.
type lookahead struct{ from, to uint64 }

// lookStep is how many records are counted at a time.
const lookStep = 1024

// lookAhead moves the stretch to record k: those before it are not wanted any
// more, and those that follow are.
func (r *Reader) lookAhead(k uint64, readers int) {
	if r.f.wanted == nil || r.f.holdsAll && r.f.spool == nil {
		return // nothing is kept, or all is, whoever wants it
	}
	l := &r.look
	if k < l.from || k > l.to {
		r.count(l.from, l.to, -1)
		l.from, l.to = k, k
	}
	if k >= l.from+lookStep {
		r.count(l.from, k, -1)
		l.from = k
	}
	// Workers that read one epoch together are each to look as far into G.
	depth := max(uint64(r.f.config.LookaheadRecords)/uint64(max(readers, 1)), lookStep)
	if to := min(k+depth, r.seq.Len()); to >= l.to+lookStep || to > l.to && to == r.seq.Len() {
		r.count(l.to, to, 1)
		l.to = to
	}
}

// count adds n for each record from … to-1.
func (r *Reader) count(from, to uint64, n int32) {
	f := r.f
	for from < to {
		m := r.seq.Records(from, r.scratch(to-from))
		if m == 0 {
			return
		}
		for _, record := range r.buf[:m] {
			f.wanted[f.pieces.of(record)].Add(n)
		}
		from += uint64(m)
	}
}

// tableBytes is the memory of what there is for each piece of the dataset.
func (f *Fetcher) tableBytes() int64 {
	return f.pieces.bytes() + int64(len(f.wanted))*4 + int64(len(f.everRead))*8
}
