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

// Part is the set of records of a dataset that a split and a sample select (SELECTION.md). It has
// one bit per record and an index to find the n-th selected record. Records keep their numbers in
// dataset order. An order is computed in ranks, the positions among the selected records, and
// Numbers turns ranks into record numbers.
//
// A nil *Part is the whole dataset, in which rank and number are the same. A Part is immutable and
// safe for concurrent use. It takes about a sixth of a byte per record of the dataset.
type Part struct {
	words []uint64 // one bit per record of the dataset, lowest first
	// blocks has the number of selected records before every partBlock-th record, and the total at
	// the end.
	blocks []uint64
	// hints has the block of every partHint-th selected record, and the last block at the end.
	hints []uint32
}

const (
	partBlock      = 256 // records: half a cache line of bits
	partBlockWords = partBlock / 64
	partHint       = 512
	// nearWords is how many words are scanned for the next record before searching.
	nearWords = 8
	// nearBlocks is how far from its likely position a block is looked for before searching.
	nearBlocks = 12
)

// index computes blocks and hints from the bits.
func (p *Part) index() {
	n := (len(p.words) + partBlockWords - 1) / partBlockWords
	p.blocks = make([]uint64, 0, n+1)
	left := uint64(0)
	for b := range n {
		p.blocks = append(p.blocks, left)
		for _, w := range p.words[b*partBlockWords : min((b+1)*partBlockWords, len(p.words))] {
			left += uint64(bits.OnesCount64(w))
		}
		for uint64(len(p.hints))*partHint < left {
			p.hints = append(p.hints, uint32(b))
		}
	}
	p.blocks = append(p.blocks, left)
	p.hints = append(p.hints, uint32(max(n, 1)-1))
}

// Len returns T′, the number of selected records.
func (p *Part) Len() uint64 { return p.blocks[len(p.blocks)-1] }

// Has reports whether a record of the dataset is selected.
func (p *Part) Has(record uint64) bool {
	return p == nil || p.words[record>>6]>>(record&63)&1 != 0
}

// Rank returns the number of selected records before record. record may be the number of records of
// the dataset.
func (p *Part) Rank(record uint64) uint64 {
	if p == nil {
		return record
	}
	word := record >> 6
	rank := p.blocks[word/partBlockWords]
	for _, w := range p.words[word&^(partBlockWords-1) : min(word, uint64(len(p.words)))] {
		rank += uint64(bits.OnesCount64(w))
	}
	if record&63 != 0 {
		rank += uint64(bits.OnesCount64(p.words[word] << (64 - record&63)))
	}
	return rank
}

// Count returns the number of selected records among from … to-1.
func (p *Part) Count(from, to uint64) uint64 { return p.Rank(to) - p.Rank(from) }

// Starts converts the first records of all chunks, followed by T, to ranks of the selected records,
// followed by T′. Chunks without a selected record are dropped.
func (p *Part) Starts(all []uint64) []uint64 {
	if p == nil {
		return all
	}
	starts := make([]uint64, 0, len(all))
	for _, first := range all {
		if rank := p.Rank(first); len(starts) == 0 || rank > starts[len(starts)-1] {
			starts = append(starts, rank)
		}
	}
	return starts
}

// Numbers replaces ranks by the numbers of their records. Consecutive ranks are fastest.
func (p *Part) Numbers(ranks []uint64) {
	if p == nil {
		return
	}
	var number, next uint64 // record of the last rank, and the rank after it
	for i, rank := range ranks {
		if i > 0 && rank == next {
			if n, ok := p.following(number); ok {
				ranks[i], number, next = n, n, rank+1
				continue
			}
		}
		number, next = p.number(rank), rank+1
		ranks[i] = number
	}
}

// following returns the next selected record, if it is near.
func (p *Part) following(record uint64) (uint64, bool) {
	record++
	at := record >> 6
	if at >= uint64(len(p.words)) {
		return 0, false
	}
	if w := p.words[at] >> (record & 63); w != 0 {
		return record + uint64(bits.TrailingZeros64(w)), true
	}
	end := min(at+nearWords, uint64(len(p.words)))
	for at++; at < end; at++ {
		if w := p.words[at]; w != 0 {
			return at<<6 + uint64(bits.TrailingZeros64(w)), true
		}
	}
	return 0, false
}

// number returns the record of a rank below Len.
func (p *Part) number(rank uint64) uint64 {
	hint := rank / partHint
	low, high := uint64(p.hints[hint]), uint64(p.hints[hint+1])
	if high-low > 8 {
		low = p.block(rank, low, high)
	} else {
		for low < high && p.blocks[low+1] <= rank {
			low++
		}
	}
	left := rank - p.blocks[low]
	for at := low * partBlockWords; ; at++ {
		w := p.words[at]
		n := uint64(bits.OnesCount64(w))
		if left < n {
			return at<<6 + nthBit(w, left)
		}
		left -= n
	}
}

// block returns the block of a rank, which is one of low … high. Samples select about the same
// number of records in each block, so the search starts at the block that this predicts.
func (p *Part) block(rank, low, high uint64) uint64 {
	before := p.blocks[low]
	at := low + (rank-before)*(high+1-low)/(p.blocks[high+1]-before)
	for range nearBlocks {
		switch {
		case p.blocks[at] > rank:
			at--
		case p.blocks[at+1] <= rank:
			at++
		default:
			return at
		}
	}
	return low + uint64(sort.Search(int(high-low), func(i int) bool { return p.blocks[low+uint64(i)+1] > rank }))
}

// nthBit returns the position of the n-th set bit of w, which must have that many. It avoids
// branches, which would be unpredictable: it computes for all bytes at once how many bits are set
// up to and including each byte; the number of these counts that are at most n is the byte that has
// the bit.
func nthBit(w, n uint64) uint64 {
	const (
		ones  = 0x0101010101010101
		highs = ones << 7
	)
	counts := w - w>>1&(ones*0x55)
	counts = counts&(ones*0x33) + counts>>2&(ones*0x33)
	counts = (counts + counts>>4) & (ones * 0x0f) * ones
	place := uint64(bits.OnesCount64(((n*ones|highs)-counts)&highs)) * 8
	n -= counts << 8 >> place & 0xff
	return place + uint64(bitInByte[n][w>>place&0xff])
}

// bitInByte has the position of the n-th set bit of a byte.
var bitInByte = func() (table [8][256]uint8) {
	for b := range 256 {
		n := 0
		for place := range 8 {
			if b>>place&1 != 0 {
				table[n][b] = uint8(place)
				n++
			}
		}
	}
	return table
}()
