package choose

import (
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Sizes are all that a choice goes by. They are plain values.
type Sizes struct {
	MemoryBytes              int64
	PieceBytes, PieceRecords uint64 // of a large piece
	Decoders                 int    // that are kept at most
	Order                    spec.Order
	Places                   uint64 // of the order, that are read at a time; 0 is 1
	MaxSpoolBytes            int64  // 0 for what the order needs
	CacheRoomBytes           int64  // that a disk cache may keep of planned chunks; 0 where there is none
	LookaheadBytes           int64  // of all readers together; 0 for what their rates ask for
	Storage                  profile.Profile
	Limits                   Limits

	Held       Held
	Compressed bool // some shard is, wanted or not
	// Shards are the dataset's, in its order. Choose and Lookahead alone look at them.
	Shards []Shard
}

// Shard is what a choice needs to know of a shard.
type Shard struct {
	DecodedBytes    int64
	StoredBytes     int64  // of its object
	Records, Wanted uint64 // Wanted are those of the part
	// EntryPoints and Parts are as in catalog.Shard. Members are the places where decoding can start,
	// points inside of members among them.
	EntryPoints, Members uint64
	Compressed, Parts    bool
}

// Held is what it takes to have pieces in memory: their bytes, what is lost
// between them, and their tables, which of short records take more than the
// records themselves. It is what all decisions about memory go by.
type Held struct {
	Shards       int    // that hold records of the part
	Packed       int    // of these, the compressed ones
	Bytes        int64  // of these, decoded
	Records      uint64 // of any kind that these hold
	Pieces       int    // that hold records of the part
	TableBytes   int64  // of all these pieces
	DecoderBytes int64  // about what a decoder holds, of the shards where that is most

	// Where an epoch takes a sample, Bytes and Records are what it brings and has of the
	// shards. Then these are the shards', and Ranges is about how many places of a piece
	// are read on average; all are 0 without a sample.
	WholeBytes   int64
	WholeRecords uint64
	Ranges       float64
}

const (
	// DecoderBytes is about what a decoder holds.
	DecoderBytes = 1 << 20
	// BesideDecoderBytes is what there is beside a codec's decoder: blocks of the file, and what is passed over.
	BesideDecoderBytes = 512 << 10
	// usualWindowBytes is zstd's up to level 8.
	usualWindowBytes = 2 << 20
)

// DecoderBytesOf is about what a decoder of a shard of so many bytes and members
// holds: of zstd's frames, which have a window each, as for one that the usual levels
// make.
func DecoderBytesOf(codec string, decodedBytes int64, members uint64) int64 {
	if codec == "gzip" {
		return DecoderBytes
	}
	return DecoderBytes + min(decodedBytes/int64(max(members, 1)), usualWindowBytes)
}
