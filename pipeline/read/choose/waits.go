package choose

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// What an order keeps of chunks, in records of a lane with a buffer of b, if a chunk has r records.
// A chunk is read when its first record is due. In a reservoir each record that has entered leaves
// with probability 1/b per turn, and one enters per turn:
//
//	turns   0        r                                       b·H(r)
//	in      ├────────┤ a chunk's records enter
//	out          ├──────·─·──·─────·──────────·──────────────────┤
//	             first: it is read                            last: none of it waits
//
// So the first leaves after b/r turns if chunks are short, and after √(π·b/2) if they are long (the
// hazard grows with each that enters), and the last after b·H(r), with H(r) = 1 + 1/2 + … + 1/r.

// first returns after how many turns the first record of a chunk leaves a reservoir.
func first(b, r float64) float64 {
	return math.Sqrt(math.Pi*b/2)*math.Erf(r/math.Sqrt(2*b)) + b/r*math.Exp(-r*r/(2*b))
}

// harmonic returns 1 + 1/2 + … + 1/r.
func harmonic(r float64) float64 { return math.Log(r) + 0.5772 + 1/(2*r) }

// unsent returns how many records of a lane have been read and not delivered, at most: those in the
// buffer whose chunk has been read, and the rest of the chunk that is entering. All lanes begin at
// the same time, so if chunks have the same number of records, chunks of all lanes enter at the
// same time.
func unsent(shuffle spec.Shuffle, b, r float64) float64 {
	r = max(r, 1)
	switch shuffle {
	case spec.ShuffleReservoir:
		return max(b+r-first(b, r), r)
	case spec.ShuffleBlock:
		// After x of a block, 1-(1-x)^r of its chunks have been read; the maximum is where
		// (1-x)^(r-1) = 1/r. Chunks at its ends belong to other blocks, too.
		share := 1.0
		if r > 1.0001 {
			share = math.Pow(r, -1/(r-1)) * (1 - 1/r)
		}
		return b*share + 2*r
	}
	return 2 * r
}

// openChunks returns how many chunks of a lane are between their first and their last record.
func openChunks(shuffle spec.Shuffle, b, r float64) float64 {
	r = max(r, 1)
	switch shuffle {
	case spec.ShuffleReservoir:
		return max(b*harmonic(r)+r-first(b, r), r)/r + 1
	case spec.ShuffleBlock:
		return b/r + 2
	}
	return 2
}

// orderMargin is what is added to the expected value, because peaks are above it.
// TestEstimateCoversMemoryRetainedByOrders has the figures.
const orderMargin = 1.1

// ordered returns what the lanes of all places keep together; all of it in a full shuffle.
func (s *Sizes) ordered(of func(shuffle spec.Shuffle, b, r float64) float64, all float64) float64 {
	h, o := &s.Held, s.Order
	if o.Shuffle == spec.ShuffleFull || h.Pieces == 0 {
		return all
	}
	lanes := float64(max(o.Lanes, 1))
	if o.Shuffle == spec.ShuffleNone {
		lanes = 1
	}
	b := max(float64(o.SizeRecords)/lanes, 1)
	r := float64(h.Records) / float64(h.Pieces)
	return min(orderMargin*lanes*float64(max(s.Places, 1))*of(o.Shuffle, b, r), all)
}

// UnsentBytes returns about the most that an order has read of chunks and not delivered, if each is
// read once, when its first record is due.
func (s *Sizes) UnsentBytes() int64 {
	h := &s.Held
	if h.Records == 0 {
		return 0
	}
	return int64(s.ordered(unsent, float64(h.Records)) / float64(h.Records) * float64(h.Bytes))
}

// OpenBytes returns about the maximum size of all chunks of an order that are between their first
// and their last record: what a disk holds so that each is fetched once.
func (s *Sizes) OpenBytes() int64 {
	h := &s.Held
	if h.Pieces == 0 {
		return 0
	}
	return int64(s.ordered(openChunks, float64(h.Pieces)) / float64(h.Pieces) * float64(h.Bytes))
}
