package order

import (
	"math/bits"
	"sort"
)

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
