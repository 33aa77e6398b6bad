package format

import "io"

// Point is a place inside a member of a compressed shard at which decoding can resume, given the
// state of the decoder there. The index pass notes points, so that long members can be entered
// elsewhere than at their first byte.
type Point struct {
	DecodedBytes   int64 // offset in the decoded shard
	MemberBytes    int64 // offset in the decoded member
	MemberRawBytes int64 // offset in the file of the member's first byte
	RawBits        int64 // offset in the file, in bits, of what is decoded next; the lowest bit of a byte comes first
	CRC32          uint32
	// State is what else the codec needs to resume, in a form of its own: at most MaxStateBytes. It
	// is empty if only the place was requested.
	State []byte
}

// MaxStateBytes bounds a Point's State.
const MaxStateBytes = 64 << 10

// RawBytes returns the offset in the file of the byte that contains the point's first bit.
func (p *Point) RawBytes() int64 { return p.RawBits >> 3 }

// PointCodec is implemented by codecs whose members can be entered at points: gzip. It is not
// possible for zstd and lz4, whose blocks depend on the decoder's state after all previous blocks.
type PointCodec interface {
	Codec
	// NewDecoderAt returns a decoder that resumes at a point which a decoder of the codec has
	// noted; raw begins at its RawBytes. Its first Next is in the point's member.
	NewDecoderAt(raw io.Reader, p Point) (Decoder, error)
}

// PointDecoder is implemented by the decoders of a PointCodec. NotePoints or Expect may be called
// before the first Next, but not both.
type PointDecoder interface {
	Decoder
	// NotePoints makes the decoder call note at the first possible place of each member that is at
	// least leastBytes decoded bytes after the member's first byte, and then repeatedly after the
	// last point; note returns the new least distance. The point's DecodedBytes is 0, because a
	// decoder does not know where it was opened (Decoded does). Calls are in order, but some time
	// after the decoder has passed the point.
	NotePoints(leastBytes int64, note func(Point) (leastBytes int64))
	// Expect makes the decoder compare what it has decoded with each point that it reaches. next
	// returns the first point beyond that many bytes of the current member; its State may be
	// missing, and points of other members don't count. A difference is damage: the bytes since the
	// previous point, or since the member's beginning, have changed since the points were noted.
	Expect(next func(memberBytes int64) (Point, bool))
	// AtPoint compares what was read so far, which must end at an expected point.
	AtPoint() error
}

const (
	// pointBytes is the smallest distance between a shard's points: a jump decodes at most this
	// much plus half a block, and windows take 0.03 % to 0.09 % of it.
	pointBytes = 8 << 20
	// mostPoints bounds the number of a shard's points: beyond 32 GiB the distance grows.
	mostPoints = 4096
)

// points collects points of a shard that are pointBytes apart, or a multiple of it.
type points struct {
	all   []Point
	least int64
}

// add adds the next point, and returns the least distance of the one after it.
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
