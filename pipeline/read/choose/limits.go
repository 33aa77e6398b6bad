package choose

import "github.com/lsiofs/lsiofs/pipeline/storage/profile"

const (
	// Segments are large enough for huge pages, small enough that a small
	// budget still has 64 of them.
	maxSegmentBytes = 2 << 20
	minSegmentBytes = 64 << 10
	minSegments     = 64
)

// Limits are the bounds that follow from the budget.
type Limits struct {
	SegmentBytes  int64 // of a segment
	TableBytes    int64 // of the tables of a segment's pieces: with more the next is begun
	CacheBytes    int64 // segments are freed above so many bytes
	WindowBytes   int64 // of what all readers read ahead together
	InFlightBytes int64 // of what is read ahead and has not come yet
	DecoderBytes  int64 // of all decoders together
	RawBlockBytes int   // of a decoder's reads
	LoanSegments  int   // so many segments are pinned by one Read
}

// SegmentBytes is the size of the segments of a budget.
func SegmentBytes(budget int64) int64 {
	return min(max(budget/minSegments, minSegmentBytes), maxSegmentBytes) &^ 4095
}

// segmentFor is the size of the segments of a budget for pieces of a size. Where hardly one
// fits, and half of each segment would stay empty, they are twice as large: as long as a
// budget still has 64 of them.
func segmentFor(budget, pieceBytes int64) int64 {
	n := SegmentBytes(budget)
	if 2*n > budget/minSegments || pieceBytes <= 0 || pieceBytes > n {
		return n
	}
	empty := func(n int64) float64 { return float64(n%pieceBytes) / float64(n) }
	if empty(n)-empty(2*n) < leastGain {
		return n
	}
	return 2 * n
}

// leastGain is from which share of a segment on it is worth twice its size.
const leastGain = 0.2

// NewLimits are the limits of a budget of which tables take some, for a storage, and pieces of
// about that size; 0 where that is not known.
// Twice what keeps the storage busy is in flight: readers ask for more only
// when they come to it, and meanwhile nothing else would be waiting.
func NewLimits(budget, tables, pieceBytes int64, p profile.Profile) Limits {
	l := Limits{SegmentBytes: segmentFor(budget, pieceBytes)}
	l.CacheBytes = max(budget-tables, budget/2)
	if l.CacheBytes >= 8*l.SegmentBytes {
		l.CacheBytes -= 2 * l.SegmentBytes // one to copy into, one spare
	}
	// What is dropped to make room is a segment, and of the shortest records one
	// could hold all there are.
	l.TableBytes = min(4*l.SegmentBytes, max(l.SegmentBytes, l.CacheBytes/16))
	l.WindowBytes = l.CacheBytes / 8
	blocks := int64(512)
	if AtService(p.Kind) {
		// What a request takes is waiting: a second of it is worth more memory than
		// what is kept by chance.
		l.WindowBytes = l.CacheBytes / 4
		blocks = 256
	}
	l.InFlightBytes = min(p.Ahead.QueuedBytes, 2*p.InFlightBytes, l.CacheBytes/4)
	l.DecoderBytes = l.CacheBytes / 2
	l.RawBlockBytes = int(min(max(budget/blocks, 16<<10), p.Ahead.DecodeBytes))
	l.LoanSegments = int(min(max(l.CacheBytes/l.SegmentBytes/8, 1), 64))
	return l
}

// SpoolRawBytes is the size of a decoder's reads where shards are spooled: as few decoders are
// at work as there are cores, so each may read more at a time from a service.
func SpoolRawBytes(l Limits, budget int64, p profile.Profile) int {
	if !AtService(p.Kind) {
		return l.RawBlockBytes
	}
	return int(min(max(budget/64, 16<<10), p.Ahead.DecodeBytes))
}
