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

// Config describes which reads a storage is fast at.
type Config struct {
	// MergeGapBytes is the largest gap of unwanted bytes that is read and discarded to save a
	// request. 0 merges only adjacent ranges.
	MergeGapBytes int64
	// MaxReadBytes is the maximum size of a read.
	MaxReadBytes int64
	// AlignBytes is the alignment at which a large range is cut; it must divide MaxReadBytes. 1
	// cuts anywhere. All other ends of reads follow the ranges.
	AlignBytes int64
	// MaxVectors bounds the number of vectors of a read, including gaps: a read ends before it has
	// more. 0 means no bound. With one buffer per read no bound is needed; readv takes at most
	// 1024. Only overlapping ranges can exceed it.
	MaxVectors int
}

// DefaultConfig returns the configuration for local solid state disks and the page cache. Measured
// there, a pread of 4 KiB takes 0.8 µs and large ones reach 17 GiB/s. So a request costs as much as
// about 10 KiB more in another read. Throughput stops growing near 1 MiB. A page is 4 KiB. Vectors
// are not bounded: callers that use them set the bound.
func DefaultConfig() Config {
	return Config{MergeGapBytes: 8 << 10, MaxReadBytes: 1 << 20, AlignBytes: 4 << 10}
}

// Validate reports all problems at once.
func (c Config) Validate() error {
	var errs []error
	if c.MergeGapBytes < 0 {
		errs = append(errs, fmt.Errorf("merge_gap (%d) must be >= 0", c.MergeGapBytes))
	}
	if c.MaxReadBytes < 1 {
		errs = append(errs, fmt.Errorf("max_read (%d) must be >= 1", c.MaxReadBytes))
	}
	if c.AlignBytes < 1 {
		errs = append(errs, fmt.Errorf("align (%d) must be >= 1", c.AlignBytes))
	} else if c.MaxReadBytes%c.AlignBytes != 0 {
		errs = append(errs, fmt.Errorf("max_read (%d) must be a multiple of align (%d)", c.MaxReadBytes, c.AlignBytes))
	}
	if c.MaxVectors < 0 {
		errs = append(errs, fmt.Errorf("max_vectors (%d) must be >= 0", c.MaxVectors))
	}
	return errors.Join(errs...)
}

// Progress tracks which wanted ranges are complete, while the reads of a plan complete in any
// order. It must not be used concurrently. Its zero value is ready for Start, which may be called
// again for another plan.
type Progress struct {
	plan *Plan
	left []int // number of parts of each range that have not arrived
}

// Start begins tracking a plan, which must stay valid while Progress is used. It appends to dst the
// ranges that are complete without a read.
func (g *Progress) Start(p *Plan, dst []int) []int {
	g.plan, g.left = p, g.left[:0]
	for w := range p.Totals.Wanted {
		n := len(p.Sources(w))
		g.left = append(g.left, n)
		if n == 0 {
			dst = append(dst, w)
		}
	}
	return dst
}

// Done records that a read has completed, and appends to dst the ranges that this read completes.
// It must be called once for each read. A failed read counts as completed; Plan.Parts has the
// ranges that it affects.
func (g *Progress) Done(read int, dst []int) []int {
	for _, part := range g.plan.Parts(read) {
		if g.left[part.Want]--; g.left[part.Want] == 0 {
			dst = append(dst, part.Want)
		}
	}
	return dst
}
