package chunkmap

import (
	"fmt"
	"math/bits"
	"sort"
	"unsafe"

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
	// RecordsBefore returns how many records of a shard begin before an offset.
	RecordsBefore(shard int, decodedBytes int64) uint64
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

// Table finds the piece of a record. It is immutable.
type Table struct {
	Starts []uint64 // first record of each piece, and the number of records at the end
	// cells[c] is the piece of record c<<shift: a search starts there and ends at the next cell's
	// piece. There are about as many cells as pieces.
	cells []uint32
	shift uint
}

// New returns the table of pieces that begin at starts, which ends with the number of records.
func New(starts []uint64, records uint64) (Table, error) {
	n := len(starts) - 1
	if n < 0 || starts[n] != records || n > 1<<31 {
		return Table{}, fmt.Errorf("the catalog's %d pieces do not cover its %d records", n, records)
	}
	t := Table{Starts: starts}
	if n == 0 {
		return t, nil
	}
	t.shift = uint(bits.Len64(records/uint64(n))) - 1
	t.cells = make([]uint32, (records-1)>>t.shift+2)
	p := 0
	for c := range t.cells {
		for p < n-1 && starts[p+1] <= uint64(c)<<t.shift {
			p++
		}
		t.cells[c] = uint32(p)
	}
	return t, nil
}

// Len returns the number of pieces.
func (t *Table) Len() int { return len(t.Starts) - 1 }

// Of returns the piece that holds a record.
func (t *Table) Of(record uint64) int {
	c := record >> t.shift
	lo, hi := int(t.cells[c]), int(t.cells[c+1])
	if hi-lo > 8 {
		return lo + sort.Search(hi-lo, func(i int) bool { return t.Starts[lo+i+1] > record })
	}
	for lo < hi && t.Starts[lo+1] <= record {
		lo++
	}
	return lo
}

// Records returns the number of records of a piece.
func (t *Table) Records(piece int) int { return int(t.Starts[piece+1] - t.Starts[piece]) }

// Bytes returns the memory of the table plus a pointer for each piece.
func (t *Table) Bytes() int64 {
	return int64(len(t.Starts))*int64(unsafe.Sizeof(uint64(0))+unsafe.Sizeof(uintptr(0))) + int64(len(t.cells))*4
}
