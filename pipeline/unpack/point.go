package unpack

import "io"

// Point is a place inside a member of a compressed shard at which decoding can go on, for who
// knows what came before it. The index pass notes them, so that long members can be entered
// elsewhere than at their first byte.
type Point struct {
	DecodedBytes   int64 // offset in the decoded shard
	MemberBytes    int64 // of these, those of the member
	MemberRawBytes int64 // offset in the file of the member's first byte
	RawBits        int64 // offset in the file, in bits, of what is decoded next; the lowest of a byte comes first
	CRC32          uint32
	// State is what the codec needs besides to go on, in a form of its own: at most MaxStateBytes.
	// It is empty where only the place is asked for.
	State []byte
}

// MaxStateBytes bounds a Point's State.
const MaxStateBytes = 64 << 10

// RawBytes is the offset in the file of the byte that holds the point's first bit.
func (p *Point) RawBytes() int64 { return p.RawBits >> 3 }

// PointCodec is implemented by codecs whose members can be entered at points: gzip. Blocks of zstd
// and lz4 depend on what the decoder was made to hold by all blocks before them.
type PointCodec interface {
	Codec
	// NewDecoderAt makes a decoder that goes on at a point which a decoder of the codec has
	// noted; raw begins at its RawBytes. Its first Next is in the point's member.
	NewDecoderAt(raw io.Reader, p Point) (Decoder, error)
}

// PointDecoder is implemented by the decoders of a PointCodec. Both ways of using points can be
// asked for before the first Next, one of them at a time.
type PointDecoder interface {
	Decoder
	// NotePoints has the decoder call note at the first place of each member that is a point and at
	// least leastBytes decoded bytes behind the member's first byte, and later behind the last
	// point; note says how many bytes are the least from then on. The point's DecodedBytes is 0,
	// for a decoder does not know where it was opened (Decoded does). It comes some time after
	// the decoder has passed it, in order.
	NotePoints(leastBytes int64, note func(Point) (leastBytes int64))
	// Expect has the decoder compare what it has decoded with each point that it comes to. next gives
	// the first one beyond so many bytes of the member that was begun last; State need not be there, and one of
	// another member is none. What differs is damage: the bytes between two points, or since the member began, are not those that were
	// there when they were noted.
	Expect(next func(memberBytes int64) (Point, bool))
	// AtPoint compares what was read so far, which ends where a point is that is expected.
	AtPoint() error
}

const (
	// pointBytes is how far points of a shard are from each other at least: a jump decodes so much
	// and half a block more at most, and windows take 0.03 % to 0.09 % of it.
	pointBytes = 8 << 20
	// mostPoints bounds those of a shard: beyond 32 GiB they are farther apart.
	mostPoints = 4096
)

// points collects those of a shard that are pointBytes apart, or a multiple of it.
type points struct {
	all   []Point
	least int64
}

// add takes the next one, and says how far behind it the one after it is to be.
func (p *points) add(x Point) int64 {
	if len(p.all) == mostPoints {
		kept := p.all[:0]
		for i := 1; i < mostPoints; i += 2 {
			kept = append(kept, p.all[i])
		}
		clear(p.all[len(kept):])
		p.all = kept
		p.least *= 2
	}
	p.all = append(p.all, x)
	return p.least
}
