package parquet

import "encoding/binary"

// Point is a row at which decoding can start.
type Point struct {
	Row    int64       // rows of the row group before it
	Leaves []LeafPoint // in the order of the selection's leaves; nil: the row group is read from its beginning
}

// LeafPoint is where a row begins in a column chunk.
type LeafPoint struct {
	RawOffset int64 // of the page in which it begins
	Pass      int64 // the rows that begin in that page before it
	Seen      int64 // the values of the chunk in earlier pages
	// RawEnd is the end of the last page that the rows before the point need: RawOffset, or that of
	// the page there.
	RawEnd int64
}

// leafPointBytes is the size of a LeafPoint in a point's bytes.
const leafPointBytes = 32

// Append appends the point's bytes, which ParsePoint reads: 8, and 32 for each leaf.
func (p Point) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(p.Row))
	for _, l := range p.Leaves {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(l.RawOffset))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(l.Pass))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(l.Seen))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(l.RawEnd))
	}
	return dst
}

// ParsePoint returns the point of some bytes. Whether it is one of a row group is checked by
// Cursor.Open.
func ParsePoint(b []byte) (Point, error) {
	if len(b) < 8 || (len(b)-8)%leafPointBytes != 0 {
		return Point{}, errPoint
	}
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	p := Point{Row: number(0)}
	if n := (len(b) - 8) / leafPointBytes; n > 0 {
		p.Leaves = make([]LeafPoint, n)
	}
	for i := range p.Leaves {
		at := 8 + i*leafPointBytes
		p.Leaves[i] = LeafPoint{number(at), number(at + 8), number(at + 16), number(at + 24)}
	}
	return p, nil
}
