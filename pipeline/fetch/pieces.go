package fetch

import (
	"fmt"
	"math/bits"
	"sort"
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/decode"
	"github.com/lsiofs/lsiofs/pipeline/fetch/spool"
)

// pieceTable finds the piece of a record. It is immutable.
type pieceTable struct {
	starts []uint64 // first record of each piece, and the number of records at the end
	// cells[c] is the piece of record c<<shift: a search starts there and ends
	// at the next cell's. There are about as many cells as pieces.
	cells []uint32
	shift uint
}

func newPieceTable(starts []uint64, records uint64) (pieceTable, error) {
	n := len(starts) - 1
	if n < 0 || starts[n] != records || n > 1<<31 {
		return pieceTable{}, fmt.Errorf("the catalog's %d pieces do not cover its %d records", n, records)
	}
	t := pieceTable{starts: starts}
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

// len is the number of pieces.
func (t *pieceTable) len() int { return len(t.starts) - 1 }

// of is the piece that holds a record.
func (t *pieceTable) of(record uint64) int {
	c := record >> t.shift
	lo, hi := int(t.cells[c]), int(t.cells[c+1])
	if hi-lo > 8 {
		return lo + sort.Search(hi-lo, func(i int) bool { return t.starts[lo+i+1] > record })
	}
	for lo < hi && t.starts[lo+1] <= record {
		lo++
	}
	return lo
}

// records is the number of records of a piece.
func (t *pieceTable) records(piece int) int { return int(t.starts[piece+1] - t.starts[piece]) }

// bytes is the memory of the table and of the slots beside it.
func (t *pieceTable) bytes() int64 {
	return int64(len(t.starts))*int64(unsafe.Sizeof(uint64(0))+unsafe.Sizeof(uintptr(0))) + int64(len(t.cells))*4
}

// places says where pieces lie in their shards. It is immutable.
type places struct {
	index  index
	pieces pieceTable
	part   Part
}

var (
	_ spool.Pieces  = (*places)(nil)
	_ decode.Pieces = (*places)(nil)
)

// PiecesOf gives the first and the last piece of a shard, which has records.
func (p *places) PiecesOf(shard int) (first, last int) {
	s := p.index.Shard(shard)
	return p.pieces.of(s.First), p.pieces.of(s.First + s.Records - 1)
}

// StartBytes is where a piece begins in its decoded shard.
func (p *places) StartBytes(piece int) int64 {
	var x [1]catalog.Extent
	p.index.Extents(p.pieces.starts[piece:piece+1], x[:])
	return x[0].OffsetBytes
}

// DecodedBytes is the size of a decoded shard.
func (p *places) DecodedBytes(shard int) int64 { return p.index.Shard(shard).DecodedBytes }

// AnyFrom says whether any record of the part is in a piece of the shard, or behind it
// in the shard.
func (p *places) AnyFrom(shard, piece int) bool {
	s := p.index.Shard(shard)
	from, end := p.pieces.starts[piece], s.First+s.Records
	return from < end && p.part.Count(from, end) > 0
}

// Shards is how many there are.
func (p *places) Shards() int { return p.index.Shards() }

// Records are a shard's, and those of them that are of the part.
func (p *places) Records(shard int) (all, wanted uint64) {
	s := p.index.Shard(shard)
	return s.Records, p.part.Count(s.First, s.First+s.Records)
}

// Path names a shard.
func (p *places) Path(shard int) string { return p.index.Shard(shard).Object.Path }
