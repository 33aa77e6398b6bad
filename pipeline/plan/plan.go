package plan

import (
	"errors"
	"fmt"
)

// Range is a run of bytes of one object, which is named by its number in
// Request.ObjectBytes. An OffsetBytes below 0 counts from the object's end:
// {OffsetBytes: -16, SizeBytes: 16} are its last 16 bytes.
type Range struct {
	Object                 int
	OffsetBytes, SizeBytes int64
}

// Request is what is wanted, and what is there. All of it stays the caller's.
type Request struct {
	// ObjectBytes are the sizes of the objects.
	ObjectBytes []int64
	// Want are the wanted ranges, in any order; they may be equal, overlap, or
	// be empty (complete at once).
	Want []Range
	// Have are the ranges that need not be read, in any order; they may
	// overlap.
	Have []Range
}

// ErrRange is wrapped by the error about a range that is not inside of its object.
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

// Read is a read to issue. It is never empty, begins and ends with bytes that
// are wanted, and is inside of its object.
type Read struct {
	Object                 int
	OffsetBytes, SizeBytes int64

	from, to int // its parts in Plan.byRead
	vectors  int // at most so many
}

// Part is bytes of a wanted range that a read brings: SizeBytes from ReadOffset
// of the read on belong at WantOffset of the range.
type Part struct {
	Read, Want             int // their numbers
	ReadOffset, WantOffset int64
	SizeBytes              int64
}

// Plan is what a Planner answers. It belongs to the planner, and is good until
// the planner's next call; until then it may be read concurrently.
type Plan struct {
	Reads  []Read // by object and offset, disjoint
	Totals Totals

	byRead, byWant []Part
	wantFrom       []int // first part of each wanted range in byWant, and their number
}

// Totals sums a plan up.
type Totals struct {
	Wanted      int   // ranges
	WantedBytes int64 // of all ranges; what several want counts for each
	CachedBytes int64 // of these, what is in Have
	UsefulBytes int64 // what has to be read: wanted and not in Have, each byte once
	Reads       int
	ReadBytes   int64
	GapBytes    int64 // read and thrown away: ReadBytes - UsefulBytes
}

// Amplification is bytes read for each byte that was wanted, 0 where none was.
func (t Totals) Amplification() float64 {
	if t.WantedBytes == 0 {
		return 0
	}
	return float64(t.ReadBytes) / float64(t.WantedBytes)
}

// Parts are the parts of a read, by their offset in it. They overlap where
// ranges do.
func (p *Plan) Parts(read int) []Part { return p.byRead[p.Reads[read].from:p.Reads[read].to] }

// Sources are the parts of a wanted range, by their offset in it: from which
// reads it comes. Bytes of the range that are in none of them are in Have.
func (p *Plan) Sources(want int) []Part { return p.byWant[p.wantFrom[want]:p.wantFrom[want+1]] }
