package chunkmap

import (
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Index is what package read and the packages below it need from a catalog. It is immutable, and
// safe for concurrent use.
type Index interface {
	Unpacker() format.Format
	// Records returns the number of records.
	Records() uint64
	// Extents fills dst with the extent of each record.
	Extents(records []uint64, dst []catalog.Extent)
	// PieceStarts returns the first record of each piece, followed by the number of records.
	PieceStarts(pieceBytes, pieceRecords, wholeBytes uint64) []uint64

	Shards() int
	Shard(i int) catalog.Shard
	// Entry returns the last entry at or before an offset in a decoded shard; Point returns the
	// point of an entry, and NextPoint the first one after an offset.
	Entry(shard int, decodedBytes int64) format.Entry
	Point(shard, number int) format.Point
	NextPoint(shard int, decodedBytes int64) (format.Point, bool)
	// Part returns the part that an offset is in, of a shard that consists of parts.
	Part(shard int, decodedBytes int64) catalog.Part
}

var _ Index = (*catalog.Catalog)(nil)

// Part is a subset of the records: the others are never asked for.
type Part interface {
	Has(record uint64) bool
	// Count returns how many of the records from … to-1 are in the part.
	Count(from, to uint64) uint64
}

// All is the part with all records.
type All struct{}

// Has implements Part.
func (All) Has(uint64) bool { return true }

// Count implements Part.
func (All) Count(from, to uint64) uint64 { return to - from }

// Map locates pieces in their shards. It is immutable.
type Map struct {
	Index Index
	Table Table
	Part  Part
	// Unaligned means that pieces need not begin and end at whole pages, which has no advantage if
	// bytes come from a service.
	Unaligned bool
}

// PiecesOf returns the first and the last piece of a shard, which must have records.
func (p *Map) PiecesOf(shard int) (first, last int) {
	s := p.Index.Shard(shard)
	return p.Table.Of(s.First), p.Table.Of(s.First + s.Records - 1)
}

// StartBytes returns where a piece begins in its decoded shard.
func (p *Map) StartBytes(piece int) int64 {
	var x [1]catalog.Extent
	p.Index.Extents(p.Table.Starts[piece:piece+1], x[:])
	return x[0].OffsetBytes
}

// DecodedBytes returns the size of a decoded shard.
func (p *Map) DecodedBytes(shard int) int64 { return p.Index.Shard(shard).DecodedBytes }

// AnyFrom reports whether any record of the part is in the given piece of the shard, or after it in
// the shard.
func (p *Map) AnyFrom(shard, piece int) bool {
	s := p.Index.Shard(shard)
	from, end := p.Table.Starts[piece], s.First+s.Records
	return from < end && p.Part.Count(from, end) > 0
}

// Shards returns the number of shards.
func (p *Map) Shards() int { return p.Index.Shards() }

// Records returns the number of a shard's records, and of those in the part.
func (p *Map) Records(shard int) (all, wanted uint64) {
	s := p.Index.Shard(shard)
	return s.Records, p.Part.Count(s.First, s.First+s.Records)
}

// Path returns the name of a shard.
func (p *Map) Path(shard int) string { return p.Index.Shard(shard).Object.Path }

// Wants reports whether any record of a piece is in the part.
func (p *Map) Wants(piece int) bool {
	return p.Part.Count(p.Table.Starts[piece], p.Table.Starts[piece+1]) > 0
}

// Subset is the set of records that the readers of an epoch ask for. If a dataset is sampled
// (pipeline/order/SELECTION.md, Samples), epochs have different subsets, and those with different
// numbers share no record; otherwise there is one, with number 0.
type Subset struct {
	Number uint64
	Part   Part
}

// Subsets are a Part with the records of any of them. All numbers are distinct.
type Subsets []Subset

// Has implements Part.
func (p Subsets) Has(record uint64) bool {
	for i := range p {
		if p[i].Part.Has(record) {
			return true
		}
	}
	return false
}

// Count implements Part.
func (p Subsets) Count(from, to uint64) (n uint64) {
	for i := range p {
		n += p[i].Part.Count(from, to)
	}
	return n
}

// Of returns p with another part.
func (p *Map) Of(part Part) *Map {
	q := *p
	q.Part = part
	return &q
}
