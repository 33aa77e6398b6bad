package scan

import (
	"math/bits"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
)

// phases are the parts of the records that open readers ask for. As a chunkmap.Part it has the
// records of all of them, which change with the readers if the dataset is sampled; otherwise there
// is one phase, always the same. Has and Count take no lock.
//
// A phase without readers stays until a reader of another one opens, so opening one file after the
// other changes nothing.
type phases struct {
	now     atomic.Pointer[chunkmap.Subsets]
	readers map[uint64]int // number of readers per phase; guarded by Scanner.mu
}

func (p *phases) init(first chunkmap.Subset) {
	p.readers = map[uint64]int{}
	p.now.Store(&chunkmap.Subsets{first})
}

// Has implements chunkmap.Part.
func (p *phases) Has(record uint64) bool { return p.now.Load().Has(record) }

// Count implements chunkmap.Part.
func (p *phases) Count(from, to uint64) uint64 { return p.now.Load().Count(from, to) }

// change returns the phases after another reader of phase with opens, those that are removed, and
// whether the phase is new. It is called with Scanner.mu held.
func (p *phases) change(with chunkmap.Subset) (next, left chunkmap.Subsets, joins bool) {
	joins = true
	for _, x := range *p.now.Load() {
		switch {
		case x.Number == with.Number:
			joins = false
		case p.readers[x.Number] == 0:
			left = append(left, x)
			continue
		}
		next = append(next, x)
	}
	if joins {
		next = append(next, with)
	}
	return next, left, joins
}

// enter adds a reader of a phase: pieces that are loaded from now on have its records, too.
func (sc *Scanner) enter(ph chunkmap.Subset) {
	if !sc.sampled {
		return
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	p := &sc.phases
	p.readers[ph.Number]++
	if p.readers[ph.Number] > 1 {
		return
	}
	next, left, joins := p.change(ph)
	if !joins && len(left) == 0 {
		return
	}
	swap := func() { p.now.Store(&next) }
	if joins {
		clear(sc.everRead) // pieces that are read from now on have other records
	}
	if sc.spool == nil {
		swap()
		return
	}
	sc.spool.Change(swap, func(shard int, gone []atomic.Uint64) (delta int64) {
		s := sc.o.Index.Shard(shard)
		if joins {
			n := ungone(ph.Part, s.First, s.Records, gone)
			if n == 0 { // all of it was delivered once: it is wanted again
				renew(ph.Part, s.First, gone)
				n = ungone(ph.Part, s.First, s.Records, gone)
			}
			delta += n
		}
		for _, x := range left {
			delta -= ungone(x.Part, s.First, s.Records, gone)
		}
		return delta
	})
}

// leave removes a reader of a phase.
func (sc *Scanner) leave(ph chunkmap.Subset) {
	if !sc.sampled {
		return
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if n := sc.phases.readers[ph.Number]; n > 1 {
		sc.phases.readers[ph.Number] = n - 1
	} else {
		delete(sc.phases.readers, ph.Number)
	}
}

// reads reports whether a phase has open readers. Pieces are loaded with records of such phases
// only, so a request for others would never end. It is called with mu held.
func (sc *Scanner) reads(ph chunkmap.Subset) bool {
	return !sc.sampled || sc.phases.readers[ph.Number] > 0
}

// eachUngone calls visit for stretches of up to 64 records of a shard, with one bit set per
// undelivered record.
func eachUngone(records uint64, gone []atomic.Uint64, visit func(word int, from, n, left uint64)) {
	for w := range gone {
		from := uint64(w) * 64
		n := min(records-from, 64)
		visit(w, from, n, ^gone[w].Load()&(^uint64(0)>>(64-n)))
	}
}

// ungone returns how many records of a part are undelivered, in a shard.
func ungone(part chunkmap.Part, first, records uint64, gone []atomic.Uint64) (sum int64) {
	eachUngone(records, gone, func(_ int, from, n, left uint64) {
		if bits.OnesCount64(left) == int(n) {
			sum += int64(part.Count(first+from, first+from+n))
			return
		}
		for ; left != 0; left &= left - 1 {
			if part.Has(first + from + uint64(bits.TrailingZeros64(left))) {
				sum++
			}
		}
	})
	return sum
}

// renew makes all records of a part wanted again.
func renew(part chunkmap.Part, first uint64, gone []atomic.Uint64) {
	for w := range gone {
		from := uint64(w) * 64
		for out := gone[w].Load(); out != 0; out &= out - 1 {
			if i := uint64(bits.TrailingZeros64(out)); part.Has(first + from + i) {
				gone[w].And(^(uint64(1) << i))
			}
		}
	}
}

// layoutOf returns the layout of a piece with the records of all present phases. some is false if
// these have none in it, as is possible after its last reader has closed.
func (sc *Scanner) layoutOf(number int) (shard int, l chunkmap.Layout, some bool) {
	now := *sc.phases.now.Load()
	if sc.sampled && now.Count(sc.pieces.Starts[number], sc.pieces.Starts[number+1]) == 0 {
		return 0, l, false
	}
	part := chunkmap.Part(now)
	if len(now) == 1 {
		part = now[0].Part // it is called for each record
	}
	shard, l = sc.layoutWith(part, number)
	return shard, l, true
}

// holds reports whether memory has all records of a piece that readers may still ask for. It takes
// no lock.
func (sc *Scanner) holds(number int) bool {
	e := sc.slots.at(number)
	if e == nil || !sc.sampled {
		return e != nil
	}
	now, first := sc.phases.now.Load(), sc.pieces.Starts[number]
	for i, s := range e.spans {
		if s.SizeBytes < 0 && !e.delivered(i) && now.Has(first+uint64(i)) {
			return false
		}
	}
	return true
}
