package order

import (
	"fmt"
	"math/bits"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Shard has what a split or a sample needs about a shard.
type Shard struct {
	Records uint64
	ID      uint64 // of its records, see the function ID
	// Anywhere is set if every record is an entry point.
	Anywhere bool
}

// Shards are the shards of a dataset, in dataset order. Entries may be called
// concurrently.
type Shards interface {
	Shards() int
	Shard(i int) Shard
	// Entries returns the entry points among records 64·word … 64·word+63 of shard i, one bit each,
	// lowest first. Bits past the last record are 0. It is not called for shards with Anywhere set.
	Entries(i int, word uint64) uint64
}

// Keeper is implemented by Shards that exclude some records from every order.
type Keeper interface {
	// Kept has a bit for each record of shard i, lowest first; nil: all are kept.
	Kept(i int) []uint64
}

// splitWork is the number of records in one piece of a split's work, about a millisecond. It is a
// multiple of 64, so that no two pieces share a word of bits.
const splitWork = 1 << 18

// NewPart computes the set of records that an epoch orders: those that its split selects and, of
// these, the phase of its sample. It takes about 2 ns per record of the dataset for each of the
// two, and less if the split is by shard or by unit. run gets the work in pieces that may run
// concurrently, must run each once, and returns when all have ended; if it skips some, the result
// must not be used. The result is nil for an order without a split and a sample, if no records are
// excluded (Keeper). Epochs of one phase (spec.Subsample.Phase) have equal parts.
//
// A split without a unit, or with an unknown unit, is an error.
func NewPart(o spec.Order, epoch uint64, shards Shards, run func(work []func())) (*Part, error) {
	picks, err := picksOf(o, epoch)
	keeper := keeperOf(shards)
	if err != nil || len(picks) == 0 && keeper == nil {
		return nil, err
	}
	c := &splitter{shards: shards, picks: picks, keeper: keeper}
	c.firsts = make([]uint64, 0, shards.Shards()+1)
	total := uint64(0)
	for i := range shards.Shards() {
		c.firsts = append(c.firsts, total)
		total += shards.Shard(i).Records
	}
	c.firsts = append(c.firsts, total)
	if total > MaxRecords {
		return nil, fmt.Errorf("order: %d records are more than the %d that can be ordered", total, uint64(MaxRecords))
	}
	p := &Part{words: make([]uint64, (total+63)/64)}
	var work []func()
	for from := uint64(0); from < total; from += splitWork {
		work = append(work, func() { c.mark(p.words, from, min(from+splitWork, total)) })
	}
	run(work)
	p.index()
	return p, nil
}

// pick selects units by whether their draw is in an interval.
type pick struct {
	by          spec.SplitBy
	key         uint64
	from, count uint64 // a draw u is selected if u - from < count
}

// picksOf returns the picks of an order that exclude records.
func picksOf(o spec.Order, epoch uint64) (picks []pick, err error) {
	if s := o.Split.Or(); s != (spec.Split{}) {
		switch s.By {
		case spec.SplitByRecord, spec.SplitByShard, spec.SplitByUnit:
		default:
			return nil, fmt.Errorf("order: unknown unit %q of a split", s.By)
		}
		p := pick{by: s.By, key: key("split", s.Seed, 0, 0)}
		p.from, p.count = s.Part.Bounds()
		picks = append(picks, p)
	}
	if s := o.Sample.Or(); s != (spec.Subsample{}) {
		p := pick{by: spec.SplitByRecord, key: key("sample", s.Seed, 0, 0)}
		p.from, p.count = phaseBounds(s.Phase(epoch), s.Of)
		picks = append(picks, p)
	}
	return picks, nil
}

// phaseBounds returns the first draw of a phase and the number of its draws, for n ≥ 2 phases. The
// phase of a draw u is the high word of u·n, so phase p has the draws from ⌈p·2⁶⁴/n⌉ up to the
// first of phase p + 1.
func phaseBounds(phase, n uint64) (from, count uint64) {
	first := func(p uint64) uint64 {
		if p == n {
			return 0 // 2⁶⁴
		}
		quotient, rest := bits.Div64(p, 0, n)
		if rest > 0 {
			quotient++
		}
		return quotient
	}
	from = first(phase)
	return from, first(phase+1) - from
}

// splitter decides which records are selected.
type splitter struct {
	shards Shards
	picks  []pick   // a record is selected if all of them take it
	keeper Keeper   // nil: nothing is excluded
	firsts []uint64 // first records of the shards, and T
}

// mark sets the bits of those records among from … to-1 that are selected. from is a multiple of
// 64, and all bits are 0 before.
func (c *splitter) mark(words []uint64, from, to uint64) {
	words = words[from>>6 : (to+63)>>6]
	if len(c.picks) == 0 {
		setAll(words, to-from)
	} else {
		c.take(words, c.picks[0], from, to)
		for _, p := range c.picks[1:] {
			other := make([]uint64, len(words))
			c.take(other, p, from, to)
			for i := range words {
				words[i] &= other[i]
			}
		}
	}
	if c.keeper != nil {
		c.keep(words, from, to)
	}
}

// setAll sets the first n bits.
func setAll(words []uint64, n uint64) {
	for i := range words {
		words[i] = ^uint64(0)
	}
	if n&63 != 0 {
		words[len(words)-1] = 1<<(n&63) - 1
	}
}

// keeperOf returns the Keeper of shards if it excludes any record, otherwise nil.
func keeperOf(shards Shards) Keeper {
	k, is := shards.(Keeper)
	if !is {
		return nil
	}
	for i := range shards.Shards() {
		if k.Kept(i) != nil {
			return k
		}
	}
	return nil
}

// keep clears the bits of those records among from … to-1 that are excluded. The first bit is that
// of record from.
func (c *splitter) keep(words []uint64, from, to uint64) {
	i := sort.Search(len(c.firsts), func(i int) bool { return c.firsts[i] > from }) - 1
	for base := from; from < to; i++ {
		first, end := c.firsts[i], min(c.firsts[i+1], to)
		if from >= end {
			continue // a shard without records
		}
		if kept := c.keeper.Kept(i); kept != nil {
			for n := from; n < end; n++ {
				if x := n - first; kept[x>>6]>>(x&63)&1 == 0 {
					words[(n-base)>>6] &^= 1 << ((n - base) & 63)
				}
			}
		}
		from = end
	}
}

// take sets the bits of those records among from … to-1 that a pick takes. The first bit is that of
// record from.
func (c *splitter) take(words []uint64, p pick, from, to uint64) {
	base := from
	i := sort.Search(len(c.firsts), func(i int) bool { return c.firsts[i] > from }) - 1
	for ; from < to; i++ {
		first, end := c.firsts[i], min(c.firsts[i+1], to)
		if from >= end {
			continue // a shard without records
		}
		s := c.shards.Shard(i)
		u := units{pick: p, shards: c.shards, words: words, base: base, shard: i, first: first}
		u.key ^= bits.ReverseBytes64(s.ID)
		switch {
		case p.by == spec.SplitByShard:
			if u.left(0) {
				u.set(from, end)
			}
		case p.by == spec.SplitByRecord || s.Anywhere:
			u.records(from, end)
		default:
			u.stretches(from, end, s.Records)
		}
		from = end
	}
}

// units applies a pick to a shard.
type units struct {
	pick   // its key is the shard's
	shards Shards
	words  []uint64
	base   uint64 // record of the first bit
	shard  int
	first  uint64 // number of its first record
}

// left reports whether the unit whose first record has that ordinal is selected.
func (u *units) left(ordinal uint64) bool { return draw(u.key, ordinal)-u.from < u.count }

// set sets the bits of records from … to-1.
func (u *units) set(from, to uint64) {
	from, to = from-u.base, to-u.base
	for from < to {
		n := min(to-from, 64-from&63)
		u.words[from>>6] |= ^uint64(0) >> (64 - n) << (from & 63)
		from += n
	}
}

// records decides on records from … to-1 one by one.
func (u *units) records(from, to uint64) {
	state := u.key + (from-u.first+1)*gamma
	from, to = from-u.base, to-u.base
	for from < to {
		word, end := from>>6, min(to, (from|63)+1)
		set := uint64(0)
		for ; from < end; from++ {
			var bit uint64
			if mix(state)-u.from < u.count {
				bit = 1
			}
			set |= bit << (from & 63)
			state += gamma
		}
		u.words[word] |= set
	}
}

// stretches decides on records from … to-1 by the entry points of their shard.
func (u *units) stretches(from, to, records uint64) {
	begin := u.entryAt(from - u.first)
	for from < to {
		end := min(u.entryAfter(from-u.first, min(records, to-u.first))+u.first, to)
		if u.left(begin) {
			u.set(from, end)
		}
		from, begin = end, end-u.first
	}
}

// entryAt returns the last entry point at or before an ordinal. The first record always is one.
func (u *units) entryAt(ordinal uint64) uint64 {
	word := ordinal >> 6
	set := u.shards.Entries(u.shard, word) << (63 - ordinal&63) >> (63 - ordinal&63)
	for set == 0 && word > 0 {
		word--
		set = u.shards.Entries(u.shard, word)
	}
	if set == 0 {
		return 0
	}
	return word<<6 + uint64(bits.Len64(set)) - 1
}

// entryAfter returns the first entry point after ordinal and below before, or before if there is
// none.
func (u *units) entryAfter(ordinal, before uint64) uint64 {
	ordinal++
	if ordinal >= before {
		return before
	}
	word := ordinal >> 6
	set := u.shards.Entries(u.shard, word) >> (ordinal & 63) << (ordinal & 63)
	for set == 0 {
		if word++; word<<6 >= before {
			return before
		}
		set = u.shards.Entries(u.shard, word)
	}
	return min(word<<6+uint64(bits.TrailingZeros64(set)), before)
}
