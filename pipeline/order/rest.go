package order

import (
	"math"
	"slices"
	"sort"
)

// level is one entry of done as a mapping from positions among the records that it leaves to
// positions among the records before it.
type level struct {
	table
	consumed []uint64
	left     uint64 // number of positions left
	past     uint64 // nothing was taken at or after this position
	// For an interleaved deal: the consumed counts, ascending, and their prefix sums, so that how
	// much was taken in the first rounds is a search instead of a walk.
	sorted, sums []uint64
}

func newLevel(remaining uint64, d Done) level {
	l := level{table: d.table(remaining), consumed: d.Consumed, left: remaining - d.Taken()}
	for w, c := range d.Consumed {
		if c > 0 {
			l.past = max(l.past, l.position(uint64(w), c-1)+1)
		}
	}
	if l.contiguous {
		return l
	}
	l.sorted = slices.Sorted(slices.Values(d.Consumed))
	l.sums = make([]uint64, len(l.sorted)+1)
	for i, c := range l.sorted {
		l.sums[i+1] = l.sums[i] + c
	}
	return l
}

// origin returns the position of the j-th remaining record; j must be below left.
func (l *level) origin(j uint64) uint64 {
	taken := l.positions - l.left
	switch {
	case j+taken >= l.past:
		return j + taken
	case l.contiguous:
		return l.originContiguous(j)
	}
	// Find the last round of the deal before which at most j records are left.
	rounds := l.positions/(l.workers*l.batch) + 1
	round := uint64(sort.Search(int(rounds), func(r int) bool { return l.leftOfRounds(uint64(r)+1) > j }))
	j -= l.leftOfRounds(round)
	begin := round * l.batch
	for w, c := range l.consumed {
		gone := min(l.batch, c-min(c, begin))
		if kept := l.batch - gone; j >= kept {
			j -= kept
			continue
		}
		return (round*l.workers+uint64(w))*l.batch + gone + j
	}
	panic("order: a round of the deal ended before its records")
}

// leftOfRounds returns how many positions are left in the first rounds of the deal. It treats the
// last round as complete.
func (l *level) leftOfRounds(rounds uint64) uint64 {
	most := rounds * l.batch // the most that a worker can have taken in them
	below := sort.Search(len(l.sorted), func(i int) bool { return l.sorted[i] > most })
	taken := l.sums[below] + uint64(len(l.sorted)-below)*most
	return most*l.workers - taken
}

func (l *level) originContiguous(j uint64) uint64 {
	for w, c := range l.consumed {
		first, size := l.stretch(uint64(w))
		if kept := size - c; j >= kept {
			j -= kept
			continue
		}
		return first + c + j
	}
	panic("order: the deal ended before its records")
}

// place is a position at one level, with its share.
type place struct {
	position uint64
	share
}

func (l *level) placeAt(p uint64) place {
	if p >= l.past {
		return place{position: p}
	}
	return place{position: p, share: l.at(p)}
}

// forward moves n positions ahead, within the run.
func (l *level) forward(p *place, n uint64) {
	p.position += n
	switch {
	case p.position >= l.past:
	case n == p.run:
		p.share = l.after(p.share, p.position)
	default:
		p.k += n
		p.run -= n
	}
}

// rest walks G′, or G if there are no levels. It must not be used concurrently.
type rest struct {
	levels []level
	places []place
	next   uint64 // index in G′ of the next record
	length uint64
	source reader
}

func newRest(e *Epoch, levels []level) *rest {
	r := &rest{
		levels: levels, places: make([]place, len(levels)), length: e.total,
		next: math.MaxUint64, source: reader{cursor: e.Cursor(0)},
	}
	if len(levels) > 0 {
		r.length = levels[len(levels)-1].left
	}
	r.seek(0) // may be far into G
	return r
}

// seek moves to the j-th record of G′.
func (r *rest) seek(j uint64) {
	if j == r.next {
		return
	}
	r.next = j
	if j >= r.length {
		return
	}
	for i := len(r.levels) - 1; i >= 0; i-- {
		j = r.levels[i].origin(j)
		r.places[i] = r.levels[i].placeAt(j)
	}
	r.source.seek(j)
}

// fill fills dst with the next records; there must be that many.
func (r *rest) fill(dst []uint64) {
	r.next += uint64(len(dst))
	for len(dst) > 0 {
		n, taken := r.stretch()
		if taken >= 0 {
			r.forward(n, taken+1)
			r.source.skip(n)
			continue
		}
		n = min(n, uint64(len(dst)))
		r.forward(n, len(r.levels))
		r.source.read(dst[:n])
		dst = dst[n:]
	}
}

// stretch returns a number of records from here on that were all taken at one level (taken), or
// that are all left (taken is negative).
func (r *rest) stretch() (n uint64, taken int) {
	n = math.MaxUint64
	for i := range r.levels {
		l, p := &r.levels[i], &r.places[i]
		if p.position >= l.past {
			continue
		}
		if c := l.consumed[p.w]; p.k < c {
			return min(n, p.run, c-p.k), i
		}
		n = min(n, p.run)
	}
	return n, -1
}

// forward moves the lowest levels n records ahead: the levels above one that took the records never
// saw them.
func (r *rest) forward(n uint64, levels int) {
	for i := range r.levels[:levels] {
		r.levels[i].forward(&r.places[i], n)
	}
}

// readerRecords is how many records of G a reader requests at a time. Runs of single records are
// common, and a call of a cursor has a fixed cost.
const readerRecords = 512

// reader reads G in small pieces.
type reader struct {
	cursor *Cursor
	ahead  []uint64 // unread part of buffer
	buffer [readerRecords]uint64
}

func (r *reader) seek(p uint64) {
	r.ahead = nil
	r.cursor.Seek(p)
}

func (r *reader) skip(n uint64) {
	if n < uint64(len(r.ahead)) {
		r.ahead = r.ahead[n:]
		return
	}
	n -= uint64(len(r.ahead))
	r.ahead = nil
	r.cursor.Seek(r.cursor.position + n)
}

func (r *reader) read(dst []uint64) {
	n := copy(dst, r.ahead)
	r.ahead = r.ahead[n:]
	if dst = dst[n:]; len(dst) == 0 {
		return
	}
	if len(dst) >= readerRecords {
		r.cursor.Next(dst)
		return
	}
	r.ahead = r.buffer[:r.cursor.Next(r.buffer[:])]
	n = copy(dst, r.ahead)
	r.ahead = r.ahead[n:]
}
