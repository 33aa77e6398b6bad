package catalog

import (
	"math/bits"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

// coarse finds the shard of a record number in O(1): numbers are cut into equal
// stretches, and for each it knows the shard of its first record. Shards are
// searched by bisection only between two of these, of which there are about
// four a shard.
type coarse struct {
	shift uint
	first []uint32
}

// leastShift makes a stretch of at least 128 records.
const leastShift = 7

// newCoarse makes the table for an image: at most one entry every 128 records,
// at most about four a shard.
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

// shardOf is the shard that holds a record, which must exist.
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

// place is where the index has a record. It is kept from record to record, as
// most callers ask for runs.
type place struct {
	shard       uint64
	first, last uint64 // numbers of the shard's first record, and behind its last
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

// Extents sets dst[i] to the extent of records[i]. The lengths must be equal. Records
// that follow each other cost the least.
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

// Sizes fills dst[i] with the stream size in bytes of records[i], the equal-key
// rule aside. O(1) a record, no allocation.
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

// KeyHashes fills dst[i] with the key hash of records[i], 0 for one without a
// key. It returns false, and fills nothing, when the format has no keys.
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

// Growth is by how many bytes a record grows under the equal-key rule at a
// position of a stream.
func (c *Catalog) Growth(record, position uint64) int64 {
	shard := c.shardOf(record)
	return c.image.Blob(shard).Growth(record-c.image.Start(shard), digits(position))
}

// digits is the number of decimal digits of n.
func digits(n uint64) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}

// RecordAbove finds the first record of more than sizeBytes bytes. It looks at
// the heads of blocks, 128 records at a time, and at the records of those alone
// whose width leaves room for such a one.
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
