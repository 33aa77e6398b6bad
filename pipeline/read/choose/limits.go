package choose

import "github.com/lsiofs/lsiofs/pipeline/storage/profile"

const (
	// Segments are large enough for huge pages, and small enough that a small budget still has 64
	// of them.
	maxSegmentBytes = 2 << 20
	minSegmentBytes = 64 << 10
	minSegments     = 64
)

// Limits are the limits that follow from the budget.
type Limits struct {
	SegmentBytes  int64 // of a segment
	TableBytes    int64 // of the tables of a segment's pieces; beyond this a new segment is begun
	CacheBytes    int64 // segments are freed above this many bytes
	WindowBytes   int64 // of what all readers read ahead together
	InFlightBytes int64 // of what is read ahead and has not arrived yet
	DecoderBytes  int64 // of all decoders together
	RawBlockBytes int   // of a decoder's reads
	LoanSegments  int   // maximum number of segments that one Read pins
}

// SegmentBytes returns the size of the segments of a budget.
func SegmentBytes(budget int64) int64 {
	return min(max(budget/minSegments, minSegmentBytes), maxSegmentBytes) &^ 4095
}

// segmentFor returns the size of the segments of a budget for pieces of a size. If they leave much
// of each segment empty, segments are twice as large, provided that the budget still has 64 of
// them.
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

// leastGain is the share of a segment that has to be gained for twice its size.
const leastGain = 0.2

// NewLimits returns the limits of a budget from which tables take some, for a storage, and pieces
// of about that size; 0 if that is not known. It allows for twice the bytes in flight that keep the
// storage busy: readers request more only as they advance, and without a reserve nothing else would
// be queued meanwhile.
func NewLimits(budget, tables, pieceBytes int64, p profile.Profile) Limits {
	l := Limits{SegmentBytes: segmentFor(budget, pieceBytes)}
	l.CacheBytes = max(budget-tables, budget/2)
	if l.CacheBytes >= 8*l.SegmentBytes {
		l.CacheBytes -= 2 * l.SegmentBytes // one to copy into, one spare
	}
	// Making room drops a whole segment, and a segment of very short records could hold the whole
	// dataset.
	l.TableBytes = min(4*l.SegmentBytes, max(l.SegmentBytes, l.CacheBytes/16))
	l.WindowBytes = l.CacheBytes / 8
	blocks := int64(512)
	if AtService(p.Kind) {
		// Here the cost of a request is waiting: a second of reading ahead is worth more memory
		// than what happens to be kept.
		l.WindowBytes = l.CacheBytes / 4
		blocks = 256
	}
	l.InFlightBytes = min(p.Ahead.QueuedBytes, 2*p.InFlightBytes, l.CacheBytes/4)
	l.DecoderBytes = l.CacheBytes / 2
	l.RawBlockBytes = int(min(max(budget/blocks, 16<<10), p.Ahead.DecodeBytes))
	l.LoanSegments = int(min(max(l.CacheBytes/l.SegmentBytes/8, 1), 64))
	return l
}

// SpoolRawBytes returns the size of a decoder's reads if shards are spooled: only as many decoders
// work as there are cores, so each may read more at a time from a service.
func SpoolRawBytes(l Limits, budget int64, p profile.Profile) int {
	if !AtService(p.Kind) {
		return l.RawBlockBytes
	}
	return int(min(max(budget/64, 16<<10), p.Ahead.DecodeBytes))
}
