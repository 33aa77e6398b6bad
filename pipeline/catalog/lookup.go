package catalog

import (
	"math/bits"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

// coarse finds the shard of a record number in O(1): record numbers are cut into equal stretches,
// and the table has the shard of each stretch's first record. Only the shards between two table
// entries are searched by bisection; there are about four entries per shard.
type coarse struct {
	shift uint
	first []uint32
}

// leastShift makes a stretch of at least 128 records.
const leastShift = 7

// newCoarse makes the table for an image: at most one entry per 128 records, and at most about four
// per shard.
func newCoarse(m *index.Image) coarse {
	t := coarse{shift: leastShift}
	limit := 4*m.Shards() + 1024
	if stretches := m.Records() >> leastShift; stretches > limit {
		t.shift += uint(bits.Len64(stretches / limit))
	}
	n := m.Records()>>t.shift + 2
	t.first = make([]uint32, 0, n)
	var shard uint64
	for i := range n {
		record := i << t.shift
		for shard+1 < m.Shards() && m.Start(shard+1) <= record {
			shard++
		}
		t.first = append(t.first, uint32(shard))
	}
	return t
}

// shardOf returns the shard that holds a record, which must exist.
func (c *Catalog) shardOf(record uint64) uint64 {
	i := record >> c.coarse.shift
	low, high := uint64(c.coarse.first[i]), uint64(c.coarse.first[i+1])
	if low == high || record < c.image.Start(low+1) {
		return low
	}
	return low + uint64(sort.Search(int(high-low), func(k int) bool {
		return c.image.Start(low+1+uint64(k)) > record
	}))
}

// place is a record's location in the index. It is reused from record to record, because most
// callers ask for runs.
type place struct {
	shard       uint64
	first, last uint64 // numbers of the shard's first record, and the one after its last
	blob        index.Blob
	block       index.Block
	blockFirst  uint64 // number of the block's first record
	index       uint64 // of the record in its block
}

// find moves p to a record. The zero place has no shard (last is 0).
func (c *Catalog) find(p *place, record uint64) {
	if record < p.first || record >= p.last {
		p.shard = c.shardOf(record)
		p.first, p.last = c.image.Start(p.shard), c.image.Start(p.shard+1)
		p.blob = c.image.Blob(p.shard)
		p.block.Records = 0
	}
	if record < p.blockFirst || record-p.blockFirst >= p.block.Records {
		p.block, p.index = p.blob.BlockOf(record-p.first, p.last-p.first)
		p.blockFirst = record - p.index
		return
	}
	p.index = record - p.blockFirst
}

// Extents sets dst[i] to the extent of records[i]. The lengths must be equal. Consecutive records
// cost the least.
func (c *Catalog) Extents(records []uint64, dst []Extent) {
	var p place
	_ = dst[:len(records)]
	for i, r := range records {
		at, blockFirst := p.index, p.blockFirst
		c.find(&p, r)
		e := Extent{Shard: int(p.shard), Ordinal: r - p.first, SizeBytes: p.block.Size(p.index)}
		if i > 0 && r == records[i-1]+1 && p.blockFirst == blockFirst && p.index == at+1 {
			last := dst[i-1]
			e.OffsetBytes = last.OffsetBytes + last.SizeBytes + p.block.Gap(at)
		} else {
			e.OffsetBytes = p.block.Offset(p.index)
		}
		dst[i] = e
	}
}

// Sizes sets dst[i] to the stream size in bytes of records[i], not counting the equal-key rule. It
// takes O(1) per record and does not allocate.
func (c *Catalog) Sizes(records []uint64, dst []int64) {
	_ = dst[:len(records)]
	var first, last uint64
	var b index.Blob
	for i, r := range records {
		if r < first || r >= last {
			shard := c.shardOf(r)
			first, last = c.image.Start(shard), c.image.Start(shard+1)
			b = c.image.Blob(shard)
		}
		dst[i] = b.Size(r - first)
	}
}

// KeyHashes sets dst[i] to the key hash of records[i], 0 for a record without a key. It returns
// false, and sets nothing, if the format has no keys.
func (c *Catalog) KeyHashes(records []uint64, dst []uint64) bool {
	if !c.image.Keyed() {
		return false
	}
	_ = dst[:len(records)]
	var first, last uint64
	var b index.Blob
	for i, r := range records {
		if r < first || r >= last {
			shard := c.shardOf(r)
			first, last = c.image.Start(shard), c.image.Start(shard+1)
			b = c.image.Blob(shard)
		}
		dst[i] = b.KeyHash(r-first, last-first)
	}
	return true
}

// Growth returns by how many bytes a record grows under the equal-key rule at a position of a
// stream.
func (c *Catalog) Growth(record, position uint64) int64 {
	shard := c.shardOf(record)
	return c.image.Blob(shard).Growth(record-c.image.Start(shard), digits(position))
}

// digits returns the number of decimal digits of n.
func digits(n uint64) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}

// RecordAbove finds the first record of more than sizeBytes bytes. It looks at the heads of blocks,
// 128 records at a time, and at the records of only those blocks whose width allows that.
func (c *Catalog) RecordAbove(sizeBytes int64) (Extent, bool) {
	for n := range c.image.Shards() {
		b := c.image.Blob(n)
		records := b.Header().Records
		for first := uint64(0); first < records; first += index.BlockRecords {
			k, _ := b.BlockOf(first, records)
			if !k.MayExceed(sizeBytes) {
				continue
			}
			for j := range k.Records {
				if size := k.Size(j); size > sizeBytes {
					return Extent{Shard: int(n), Ordinal: first + j, OffsetBytes: k.Offset(j), SizeBytes: size}, true
				}
			}
		}
	}
	return Extent{}, false
}
