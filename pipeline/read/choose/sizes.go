package choose

import (
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Settings is what a choice depends on besides the dataset.
type Settings struct {
	MemoryBytes              int64
	PieceBytes, PieceRecords uint64 // of a large piece
	Decoders                 int    // maximum number that is kept
	Order                    spec.Order
	Places                   uint64 // of the order that are read at the same time; 0 is 1
	MaxSpoolBytes            int64  // 0 for what the order needs
	CacheRoomBytes           int64  // that a disk cache may keep of planned chunks; 0 if there is no cache
	LookaheadBytes           int64  // of all readers together; 0 for what their rates require
	Storage                  profile.Profile
}

// Sizes is all that a choice depends on. They are plain values.
type Sizes struct {
	Settings
	Limits Limits

	Held       Held
	Compressed bool // some shard is compressed, wanted or not
	// Shards are the dataset's shards, in its order. Only Choose and Lookahead look at them.
	Shards []Shard
}

// Shard is what a choice needs to know about a shard.
type Shard struct {
	DecodedBytes    int64
	StoredBytes     int64  // of its object
	Records, Wanted uint64 // Wanted counts those in the part
	// EntryPoints and Parts are as in catalog.Shard. Members counts the places where decoding can
	// start, including points within members.
	EntryPoints, Members uint64
	Compressed, Parts    bool
}

// Held is what it takes to have pieces in memory: their bytes, what is lost between them, and their
// tables, which take more than the records if these are short. All decisions about memory depend on
// it.
type Held struct {
	Shards       int    // that hold records of the part
	Packed       int    // of these, the compressed ones
	Bytes        int64  // of these, decoded
	Records      uint64 // in these, of the part or not
	Pieces       int    // that hold records of the part
	TableBytes   int64  // of all these pieces
	DecoderBytes int64  // about what a decoder holds, for the shards for which that is most

	// If an epoch takes a sample, Bytes and Records are what it reads and has of the shards. Then
	// WholeBytes and WholeRecords are those of the shards, and Ranges is about how many ranges of a
	// piece are read on average. All three are 0 without a sample.
	WholeBytes   int64
	WholeRecords uint64
	Ranges       float64
}

const (
	// DecoderBytes is about what a decoder holds.
	DecoderBytes = 1 << 20
	// BesideDecoderBytes is what is held besides a codec's decoder: blocks of the file, and a
	// buffer for bytes that are skipped.
	BesideDecoderBytes = 512 << 10
	// usualWindowBytes is zstd's window up to level 8.
	usualWindowBytes = 2 << 20
)

// DecoderBytesOf returns about what a decoder holds for a shard of that many bytes and members. For
// zstd, whose frames have a window each, it assumes the window of the usual levels.
func DecoderBytesOf(codec string, decodedBytes int64, members uint64) int64 {
	if codec == "gzip" {
		return DecoderBytes
	}
	return DecoderBytes + min(decodedBytes/int64(max(members, 1)), usualWindowBytes)
}
