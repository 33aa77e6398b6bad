package decode

import (
	"iter"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Load is a piece of a shard that a decoder is to bring. It is constant, but for its
// memory, which is there after Work.Room or Work.Passing.
type Load interface {
	// Piece is its number: those of a shard are consecutive, in its order.
	Piece() int
	// Bounds is where its first range begins and its last one ends in the decoded
	// shard. reach is where the piece behind it begins, if that is before end
	// because their records overlap; else it is end.
	Bounds() (start, end, reach int64)
	// Ranges are the offsets and sizes of what it is made of, ascending.
	Ranges() iter.Seq2[int64, int64]
	// Memory is where the ranges go, one behind the other.
	Memory() []byte
}

// Work is what decoders ask of those who want pieces. No lock of this package is held
// when its methods are called; they may be called concurrently.
type Work interface {
	// Room finds the memory of a load that a decoder has come to. Where there is
	// none it ends the load and says no.
	Room(Load) bool
	// Passing gives a load, with its memory, of a piece that a decoder is about to
	// pass, if it is worth keeping, not there and not on its way; nil where it is not.
	Passing(d *Decoder, piece int) Load
	// Next is the first piece of the shard, from piece on, to which a decoder that
	// has nothing to bring shall go on; -1 for none.
	Next(shard, piece int) int
	// Came takes a load whose bytes are in its memory.
	Came(Load)
	// Broken is told of what a checksum showed: the shard can't be trusted any more.
	Broken(shard int, err error)
	// Failed ends loads with an error.
	Failed(loads []Load, err error)
	// Shrink is called when decoders have come to hold more memory.
	Shrink()
}

// Index is what is known of shards.
type Index interface {
	Shard(i int) catalog.Shard
	Entry(shard int, decodedBytes int64) format.Entry
	// Point is that of an Entry, NextPoint the first one behind a byte of a decoded shard.
	Point(shard, number int) format.Point
	NextPoint(shard int, decodedBytes int64) (format.Point, bool)
	Part(shard int, decodedBytes int64) catalog.Part
}

// Pieces says where the pieces of shards lie.
type Pieces interface {
	// PiecesOf gives the first and the last piece of a shard, which has records.
	PiecesOf(shard int) (first, last int)
	// StartBytes is where a piece begins in its decoded shard.
	StartBytes(piece int) int64
	// AnyFrom says whether any record of the shard may be asked for that lies in the
	// piece or behind it.
	AnyFrom(shard, piece int) bool
}
