package chunkmap

import (
	"fmt"
	"math/bits"
	"sort"
	"unsafe"
)

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
