package decode

import "iter"

// Load is a piece of a shard that a decoder has to decode. It is constant, except for its memory,
// which is available after Work.Room or Work.Passing.
type Load interface {
	// Piece returns its number. The pieces of a shard have consecutive numbers, in shard order.
	Piece() int
	// Bounds returns where its first range begins and its last one ends in the decoded shard. reach
	// is where the next piece begins if that is before end because records overlap; else it is end.
	Bounds() (start, end, reach int64)
	// Ranges returns the offsets and sizes of what it consists of, ascending.
	Ranges() iter.Seq2[int64, int64]
	// Memory returns where the ranges are stored, one after the other.
	Memory() []byte
}

// Work is the owner of the pieces that decoders decode. Its methods are called without a lock of
// this package, and concurrently.
type Work interface {
	// Room allocates the memory of a load that a decoder has reached. If there is none, it ends the
	// load and returns false.
	Room(Load) bool
	// Passing returns a load, with its memory, for a piece that a decoder is about to pass, if the
	// piece is worth keeping and neither in memory nor being loaded; else nil.
	Passing(d *Decoder, piece int) Load
	// Next returns the first piece of the shard, from piece on, to which a decoder without loads
	// should move on; -1 for none.
	Next(shard, piece int) int
	// Came completes a load whose bytes are in its memory.
	Came(Load)
	// Broken is called after a checksum error: nothing of the shard can be trusted any more.
	Broken(shard int, err error)
	// Failed ends loads with an error.
	Failed(loads []Load, err error)
	// Shrink is called when decoders hold more memory than before.
	Shrink()
}
