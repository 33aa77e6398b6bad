package unpack

import (
	"context"
	"errors"
	"io"
)

// Member is one gzip member or zstd frame: where its first byte is in the
// decoded shard and in the file.
type Member struct {
	DecodedBytes, RawBytes int64
}

// Summary is what the index pass learnt about a shard beside its records.
type Summary struct {
	// DecodedBytes is the size of the decoded shard; of a damaged compressed
	// one, that of the members before the damage.
	DecodedBytes int64
	// Members are the compressed shard's members, in order; nil when it is
	// not compressed. Empty members are among them.
	Members []Member
	// Damage is what ended the pass early, nil for a sound shard.
	Damage *CorruptError
}

// Scan runs the index pass over one shard: size raw bytes, decoded by codec
// (nil for none), cut by format. emit gets each record in file order.
//
// Damage ends the pass and is in the summary; all records that were emitted
// before are kept by --on-corrupt skip, unless they come from the damaged
// member: so when a codec finds damage, Scan calls restart and passes a second
// time over the bytes before that member only. A shard of no bytes is damaged.
// Errors of reading, refusals and errors of emit are returned.
func Scan(ctx context.Context, format Format, codec Codec, raw io.ReaderAt, size int64, emit func(Extent) error, restart func()) (Summary, error) {
	return Summary{}, errors.New("not built yet")
}
