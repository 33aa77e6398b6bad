package fetch

import (
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// wanted counts, for each piece, the records that readers will come to soon.
// A decoder on its way through a shard keeps what is wanted, so that the shard
// need not be decoded again for it. It is nil where no shard is compressed.
type wanted []atomic.Int32

// lookStep is how many records are counted at a time.
const lookStep = 1024

// looking bounds how many pieces are wanted at a time, by all readers: what a
// decoder keeps on its way must not fill the memory before that which comes next
// is there.
type looking struct {
	most   int64        // 0: where nothing is kept by what is wanted
	wanted atomic.Int64 // now
	// sweeps is set for a scan that nobody would have chosen: one that was asked
	// for, of shards that memory does not hold and that can be entered at few
	// places. Then readers look no further ahead than a quarter of the memory has
	// room for, and a decoder that has begun goes on to the last piece that is
	// wanted of its shard. So each pass brings as many pieces as that.
	sweeps bool
}

// newLooking decides that.
func (f *Fetcher) newLooking() {
	if f.wanted == nil || f.holdsAll || f.choice.Strategy != spec.ReadScan || f.held.Pieces == 0 {
		return
	}
	h, s := &f.held, f.sizes()
	each := s.AllBytes()/int64(h.Pieces) + 1
	if c, err := f.Choose(spec.ReadAuto); err != nil || c.Strategy != spec.ReadScan {
		f.looking.sweeps = true
		f.looking.most = max(f.limits.CacheBytes/4/each, 1)
		return
	}
	room := s.Room(s.OpenDecoders())
	f.looking.most = max(room/4*3/each, 1)
	if h.TableBytes < h.Bytes/4 && f.config.Order.Shuffle != spec.ShuffleFull {
		// Of pieces that are mostly bytes, what waits in the shuffle has partly gone
		// out, and takes no more room.
		f.looking.most = max(f.looking.most, int64(2*s.OpenPieces()))
	}
}

// step is how many records are counted at a time.
func (l *looking) step() uint64 {
	if l.most == 0 {
		return lookStep
	}
	return uint64(max(min(l.most/4, lookStep), 1))
}

// full says that no more pieces may be wanted.
func (l *looking) full() bool { return l.most > 0 && l.wanted.Load() >= l.most }

// lookahead is the stretch of a sequence that a reader has counted in wanted.
// It is guarded by Reader.mu.
type lookahead struct{ from, to uint64 }

// lookAhead moves the stretch to record k: those before it are not wanted any
// more, and those that follow are.
func (r *Reader) lookAhead(k uint64, readers int) {
	if r.f.wanted == nil || r.f.holdsAll && r.f.spool == nil {
		return // nothing is kept, or all is, whoever wants it
	}
	l, step := &r.look, r.f.looking.step()
	if k < l.from || k > l.to {
		r.count(l.from, l.to, -1)
		l.from, l.to = k, k
	}
	if k >= l.from+step {
		r.count(l.from, k, -1)
		l.from = k
	}
	// Workers that read one epoch together are each to look as far into G.
	depth := max(uint64(r.f.config.LookaheadRecords)/uint64(max(readers, 1)), lookStep)
	to := min(k+depth, r.seq.Len())
	if to < l.to+step && !(to > l.to && to == r.seq.Len()) {
		return
	}
	if r.f.looking.most == 0 {
		r.count(l.to, to, 1)
		l.to = to
	}
	for l.to < to && (!r.f.looking.full() || l.to <= k) {
		end := min(l.to+step, to)
		r.count(l.to, end, 1)
		l.to = end
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
			if now := f.wanted[f.pieces.of(record)].Add(n); now == max(n, 0) {
				f.looking.wanted.Add(int64(n)) // the first, or the last
			}
		}
		from += uint64(m)
	}
}

// tableBytes is the memory of what there is for each piece of the dataset.
func (f *Fetcher) tableBytes() int64 {
	return f.pieces.bytes() + int64(len(f.wanted))*4 + int64(len(f.everRead))*8
}
