package chunkmap

import (
	"iter"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// Layout is which ranges of a decoded shard a piece consists of, and where its records are when the
// ranges lie one after the other in memory.
type Layout struct {
	Ranges    []Range
	Spans     []Span // offsets from the piece's first byte; a size of -1: not in the part
	SizeBytes int64  // of all ranges
	// Newline is set if the last byte is not in the shard: a last line's missing newline.
	Newline bool
	// ReachBytes is where the next piece in the shard begins, if that is before this one's end
	// because their records overlap; else this one's end.
	ReachBytes int64
}

// Range is some bytes of a decoded shard.
type Range struct{ OffsetBytes, SizeBytes int64 }

// Span is where a record is in memory; a size of -1 means that it is not in memory or not in the
// part.
type Span struct{ OffsetBytes, SizeBytes int64 }

// TableBytes returns the memory of the table of a piece of that many records that is in memory. It
// is counted twice: the garbage collector lets the heap grow to double the live memory.
func TableBytes(records int) int64 { return 2 * (192 + int64(records)*16 + int64(records+63)/64*8) }

// Layout returns the layout of a piece's records that are in the part, which must have some, and
// the shard that they are in. gapBytes returns, for that shard, the largest gap between records
// that is read with them. A large piece of an uncompressed shard consists of whole pages, unless
// Unaligned is set.
func (p *Map) Layout(piece int, gapBytes func(shard int) int64) (shard int, l Layout) {
	n := p.Table.Records(piece)
	numbers, extents := make([]uint64, n), make([]catalog.Extent, n)
	for i := range numbers {
		numbers[i] = p.Table.Starts[piece] + uint64(i)
	}
	p.Index.Extents(numbers, extents)
	shard = extents[0].Shard
	gap := gapBytes(shard)
	l = Layout{Spans: make([]Span, n)}
	base := int64(0) // size of the ranges before the last
	for i, x := range extents {
		if !p.Part.Has(numbers[i]) {
			l.Spans[i].SizeBytes = -1
			continue
		}
		from, end := x.OffsetBytes, x.OffsetBytes+x.SizeBytes
		if len(l.Ranges) == 0 || from-l.End() > gap {
			base = l.SizeBytes
			l.Ranges = append(l.Ranges, Range{OffsetBytes: from})
		}
		r := &l.Ranges[len(l.Ranges)-1]
		if end > r.OffsetBytes+r.SizeBytes {
			r.SizeBytes = end - r.OffsetBytes
		}
		l.Spans[i] = Span{base + x.OffsetBytes - r.OffsetBytes, x.SizeBytes}
		l.SizeBytes = base + r.SizeBytes
	}
	s := p.Index.Shard(shard)
	if l.End() > s.DecodedBytes {
		l.Ranges[len(l.Ranges)-1].SizeBytes--
		l.Newline = true
	}
	l.ReachBytes = l.End()
	if p.Table.Starts[piece+1] < s.First+s.Records {
		l.ReachBytes = min(l.ReachBytes, p.StartBytes(piece+1))
	}
	if s.Codec == nil && !p.Unaligned {
		l.align(s.Object.SizeBytes)
	}
	return shard, l
}

// align extends a large range to whole pages of its object.
func (l *Layout) align(objectBytes int64) {
	if len(l.Ranges) != 1 || l.SizeBytes < budget.AlignFromBytes {
		return
	}
	r := &l.Ranges[0]
	behind := l.SizeBytes - r.SizeBytes // a newline
	lead := r.OffsetBytes % budget.PageBytes
	end := min(budget.RoundToPages(r.OffsetBytes+r.SizeBytes), objectBytes)
	*r = Range{r.OffsetBytes - lead, end - r.OffsetBytes + lead}
	for i := range l.Spans {
		l.Spans[i].OffsetBytes += lead
	}
	l.SizeBytes = r.SizeBytes + behind
}

// CostBytes returns what the piece takes of the memory, including its table.
func (l *Layout) CostBytes() int64 { return l.SizeBytes + TableBytes(len(l.Spans)) }

// All returns the ranges, each with its offset and size.
func (l *Layout) All() iter.Seq2[int64, int64] {
	return func(yield func(off, size int64) bool) {
		for _, r := range l.Ranges {
			if !yield(r.OffsetBytes, r.SizeBytes) {
				return
			}
		}
	}
}

// Start returns where the first range begins.
func (l *Layout) Start() int64 { return l.Ranges[0].OffsetBytes }

// End returns where the last range ends.
func (l *Layout) End() int64 {
	r := l.Ranges[len(l.Ranges)-1]
	return r.OffsetBytes + r.SizeBytes
}

// ShardBytes returns the size without a newline that is not in the shard.
func (l *Layout) ShardBytes() int64 {
	if l.Newline {
		return l.SizeBytes - 1
	}
	return l.SizeBytes
}

// Reads splits the ranges into reads of up to mostBytes: a range that is too large for one is split
// into several of about the same size, to be read concurrently. They are split at multiples of
// alignBytes, a power of two.
func (l *Layout) Reads(mostBytes, alignBytes int64, read func(Range)) {
	for _, r := range l.Ranges {
		for end := r.OffsetBytes + r.SizeBytes; r.OffsetBytes < end; {
			n := end - r.OffsetBytes
			if n > mostBytes {
				parts := (n-1)/mostBytes + 1
				part := (n-1)/parts + 1
				part = (part + alignBytes - 1) &^ (alignBytes - 1)
				n = (r.OffsetBytes+part)&^(alignBytes-1) - r.OffsetBytes
			}
			read(Range{r.OffsetBytes, n})
			r.OffsetBytes += n
		}
	}
}
