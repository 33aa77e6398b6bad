package plan

import (
	"errors"
	"fmt"
)

// Range is a run of bytes of one object; the object is an index into
// Request.ObjectBytes. A negative OffsetBytes counts from the object's end:
// {OffsetBytes: -16, SizeBytes: 16} is its last 16 bytes.
type Range struct {
	Object                 int
	OffsetBytes, SizeBytes int64
}

// Request has the wanted ranges, and the available ones. The caller owns all of it.
type Request struct {
	// ObjectBytes are the sizes of the objects.
	ObjectBytes []int64
	// Want has the wanted ranges, in any order. They may be equal, overlap, or be empty; empty ones
	// are complete at once.
	Want []Range
	// Have has the ranges that need not be read, in any order; they may overlap.
	Have []Range
}

// ErrRange is wrapped by the error for a range that is not inside its object.
var ErrRange = errors.New("range is not inside of its object")

func (r Range) resolve(objectBytes []int64) (begin, end int64, err error) {
	if r.Object < 0 || r.Object >= len(objectBytes) {
		return 0, 0, fmt.Errorf("object %d of %d: %w", r.Object, len(objectBytes), ErrRange)
	}
	size := objectBytes[r.Object]
	if begin = r.OffsetBytes; begin < 0 {
		begin += size
	}
	if begin < 0 || r.SizeBytes < 0 || r.SizeBytes > size || begin > size-r.SizeBytes {
		return 0, 0, fmt.Errorf("object %d: %d bytes from %d on, of %d: %w", r.Object, r.SizeBytes, r.OffsetBytes, size, ErrRange)
	}
	return begin, begin + r.SizeBytes, nil
}

// Read is a read to issue. It is never empty, is inside its object, and begins and ends with wanted
// bytes.
type Read struct {
	Object                 int
	OffsetBytes, SizeBytes int64

	from, to int // its parts in Plan.byRead
	vectors  int // upper bound on their number
}

// Part maps bytes of a read to a wanted range: SizeBytes at ReadOffset in the read go to WantOffset
// in the range.
type Part struct {
	Read, Want             int // indices of the read and the range
	ReadOffset, WantOffset int64
	SizeBytes              int64
}

// Plan is the result of Planner.Plan. The planner owns it; it is valid until the
// planner's next call, and may be read concurrently until then.
type Plan struct {
	Reads  []Read // by object and offset, disjoint
	Totals Totals

	byRead, byWant []Part
	wantFrom       []int // index in byWant of each wanted range's first part, and len(byWant) at the end
}

// Totals are the sums of a plan.
type Totals struct {
	Wanted      int   // ranges
	WantedBytes int64 // of all ranges; bytes wanted by several ranges count for each
	CachedBytes int64 // the part of these that is in Have
	UsefulBytes int64 // bytes that must be read: wanted and not in Have, each counted once
	Reads       int
	ReadBytes   int64
	GapBytes    int64 // read and discarded: ReadBytes - UsefulBytes
}

// Amplification returns bytes read divided by bytes wanted; 0 if none were wanted.
func (t Totals) Amplification() float64 {
	if t.WantedBytes == 0 {
		return 0
	}
	return float64(t.ReadBytes) / float64(t.WantedBytes)
}

// Parts returns the parts of a read, sorted by their offset in the read. They overlap if ranges do.
func (p *Plan) Parts(read int) []Part { return p.byRead[p.Reads[read].from:p.Reads[read].to] }

// Sources returns the parts of a wanted range, sorted by their offset in the range: the reads that
// it comes from. Bytes of the range outside all parts are in Have.
func (p *Plan) Sources(want int) []Part { return p.byWant[p.wantFrom[want]:p.wantFrom[want+1]] }
