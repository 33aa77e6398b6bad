package strategy

import "github.com/lsiofs/lsiofs/pipeline/storage/profile"

const (
	// Segments are large enough for huge pages, small enough that a small
	// budget still has 64 of them.
	maxSegmentBytes = 2 << 20
	minSegmentBytes = 64 << 10
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
	LoanSegments  int   // so many segments are pinned by one Lend
}

// SegmentBytes is the size of the segments of a budget.
func SegmentBytes(budget int64) int64 {
	return min(max(budget/64, minSegmentBytes), maxSegmentBytes) &^ 4095
}

// NewLimits are the limits of a budget of which tables take some, for a storage.
// Twice what keeps the storage busy is in flight: readers ask for more only
// when they come to it, and meanwhile nothing else would be waiting.
func NewLimits(budget, tables int64, p profile.Profile) Limits {
	l := Limits{SegmentBytes: SegmentBytes(budget)}
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
