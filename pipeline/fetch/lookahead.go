package fetch

import (
	"github.com/lsiofs/lsiofs/pipeline/fetch/ahead"
	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// boundLookahead decides how many pieces may be wanted at a time, where what decoders
// keep on their way must not fill the memory, and whether a scan sweeps: one that nobody
// would have chosen, that was asked for, of shards that memory does not hold and that can
// be entered at few places. Then readers look no further ahead than a quarter of the
// memory has room for, and a decoder that has begun goes on to the last piece that is
// wanted of its shard. So each pass brings as many pieces as that.
func (f *Fetcher) boundLookahead() {
	if f.wanted == nil || f.holdsAll || f.choice.Strategy != spec.ReadScan || f.held.Pieces == 0 {
		return
	}
	h, s := &f.held, f.sizes()
	each := s.AllBytes()/int64(h.Pieces) + 1
	if c, err := f.Choose(spec.ReadAuto); err != nil || c.Strategy != spec.ReadScan {
		f.sweeps = true
		f.wanted.Bound(max(f.limits.CacheBytes/4/each, 1))
		return
	}
	room := s.Room(s.OpenDecoders())
	most := max(room/4*3/each, 1)
	if h.TableBytes < h.Bytes/4 && f.config.Order.Shuffle != spec.ShuffleFull {
		// Of pieces that are mostly bytes, what waits in the shuffle has partly gone
		// out, and takes no more room.
		most = max(most, int64(2*s.OpenPieces()))
	}
	f.wanted.Bound(most)
}

// follow gives what looks ahead of a reader of a sequence.
func (f *Fetcher) follow(seq Sequence) ahead.Reader {
	counts := f.wanted
	if f.holdsAll && f.spool == nil {
		counts = nil // all is kept, whoever wants it
	}
	return ahead.NewReader(seq, counts, f.config.LookaheadRecords)
}

// stock is what a reader's looking ahead asks of the fetcher. It is guarded by
// Reader.mu.
type stock struct {
	r    *Reader
	todo todo // to be carried out without the lock
}

var _ ahead.Stock = (*stock)(nil)

// Have is how many of the records are in memory, up to one that is not.
func (s *stock) Have(records []uint64) int {
	f := s.r.f
	for at, record := range records {
		piece := f.pieces.Of(record)
		if !f.slots.has(piece, int(record-f.pieces.Starts[piece])) {
			return at
		}
	}
	return len(records)
}

// Start starts a record's piece, unless it is on its way.
func (s *stock) Start(record uint64, more bool) (bytes int64, room bool) {
	f := s.r.f
	piece := f.pieces.Of(record)
	i := int(record - f.pieces.Starts[piece])
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots.has(piece, i) {
		return 0, true // since it was looked at
	}
	if ld := f.loads[piece]; ld != nil {
		ld.want(s.r)
		return 0, true
	}
	if !more {
		return 0, false
	}
	ld := f.start(piece, i, budget.Ahead, &s.todo)
	if ld == nil {
		return 0, false
	}
	ld.want(s.r)
	return ld.layout.cost(), true
}

// CallOff implements ahead.Stock.
func (s *stock) CallOff() { s.r.f.callOff(s.r) }

// readAhead starts what is missing behind records k … k+n-1, and of these.
// again says that some of these are missing: they are looked at again, from
// the lent-th on.
func (r *Reader) readAhead(k uint64, n int, again bool, lent int) {
	f := r.f
	if f.slots.missing.Load() == 0 {
		return
	}
	if !r.mu.TryLock() {
		return // another call is at it
	}
	readers := max(f.open.Load(), 1)
	r.ahead.Advance(&r.stock, k, n, again, lent, int(readers), min(f.config.Storage.Ahead.Bytes, f.limits.WindowBytes/readers))
	t := r.stock.todo
	r.stock.todo = todo{}
	r.mu.Unlock()
	f.carryOut(&t)
}

// tableBytes is the memory of what there is for each piece of the dataset.
func (f *Fetcher) tableBytes() int64 {
	n := f.pieces.Bytes() + int64(len(f.everRead))*8
	if f.wanted != nil {
		n += f.wanted.Bytes()
	}
	return n
}
