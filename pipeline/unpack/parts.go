package unpack

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

// Parts is the Source of a shard that is made of parts, such as games, each of
// which is sound or damaged by itself: what is damaged is left out, and the next
// part goes on where it would have begun. So the decoded shard is made of the
// parts that are kept, one behind the other.
//
// Before the first NextPart, and at the end of each part, the source is at its
// end: Window and Discard give io.EOF and io.ErrUnexpectedEOF there. Damage that
// the codec finds in a part is a *CorruptError of Window or Discard; after it the
// part is to be given up with Lose.
type Parts interface {
	Source
	// NextPart goes on to the part that follows, and gives io.EOF at the shard's
	// end. A part that was not lost must have been read to its end before: only
	// then its checksum has been seen.
	NextPart() error
	// Lose leaves all of the part out that was read last: OffsetBytes is where it
	// began. The place and the part's name are filled in.
	Lose(damage *CorruptError)
	// Lack notes damage of a single record of the part, which is kept. The part's
	// name is put before what damage.Part says.
	Lack(damage *CorruptError)
	// PartName is of the current part, for messages; "" where the whole file is
	// the part.
	PartName() string
}

// PartCodec is implemented by codecs whose members are parts. What NewDecoder
// gives is a PartDecoder.
type PartCodec interface {
	Codec
	NewPartDecoder(raw io.Reader, rawOffset int64) (PartDecoder, error)
}

// PartDecoder is a decoder whose members are parts. Damage that Read gives is of
// one part: Next then goes on with the part that follows. It passes over what is
// left of a part without decoding it. Damage that Next gives is the shard's, and
// ends it.
type PartDecoder interface {
	Decoder
	// PartName is of the current part, for messages; "" where the whole file is
	// the part. It is valid until the next call of Next.
	PartName() string
}

// OwnCodecs is implemented by formats whose shards are not told, or not decoded,
// by the endings of their names alone.
type OwnCodecs interface {
	Format
	// Takes says whether a shard may have such a name.
	Takes(path string) bool
	// Codec is that of a shard with such a name. byEnding is the one that the
	// name's ending stands for, nil for none.
	Codec(path string, byEnding Codec) Codec
	// SniffRaw says whether a file is a shard of this format although its name is
	// that of another's. Errors are those of reading.
	SniffRaw(raw io.ReaderAt, sizeBytes int64) (bool, error)
}

// Losses are what was left out of a shard that is made of parts. Reasons and
// damages that are listed are bounded, counts are not.
type Losses struct {
	// First are the first damages, in file order.
	First []*CorruptError
	// Reasons says how often there was which reason, in the order in which they
	// came up first.
	Reasons []Reason
}

// Reason is why something was left out, and how often.
type Reason struct {
	Text  string
	Count uint64
}

const (
	// MaxListedLosses is how many damages of a shard are listed: enough to see
	// what they are.
	MaxListedLosses = 8
	// maxReasons bounds the reasons that are told apart: formats have a few,
	// codecs bring words of their own.
	maxReasons   = 16
	otherReasons = "other reasons"
)

// Add counts a damage, and lists it if it is among the first.
func (l *Losses) Add(d *CorruptError) {
	if len(l.First) < MaxListedLosses {
		l.First = append(l.First, d)
	}
	l.Reasons = CountReason(l.Reasons, d.Reason, 1)
}

// CountReason adds to the count of a reason. From 16 on, new ones are counted
// together.
func CountReason(list []Reason, text string, count uint64) []Reason {
	i := slices.IndexFunc(list, func(r Reason) bool { return r.Text == text })
	if i < 0 && len(list) >= maxReasons-1 && text != otherReasons {
		return CountReason(list, otherReasons, count)
	}
	if i < 0 {
		return append(list, Reason{text, count})
	}
	list[i].Count += count
	return list
}

// scanParts is the index pass over a shard that is made of parts. There is no
// second pass: formats emit the records of a part once its end has been seen.
func (s *scan) scanParts(ctx context.Context, codec PartCodec) (Summary, error) {
	d, err := codec.NewPartDecoder(&forwardReader{raw: s.raw, size: s.size}, 0)
	if err != nil {
		return Summary{}, err
	}
	defer d.Close()
	buffer := partBuffers.Get().(*[]byte)
	defer partBuffers.Put(buffer)
	src := newPartSource(d, *buffer)
	kind, err := s.index(ctx, src)
	damage, err := splitDamage(err)
	if err != nil {
		return Summary{}, err
	}
	if damage != nil {
		placed := *damage
		placed.OffsetBytes, placed.Record = src.base, s.records
		damage = &placed
	}
	return Summary{DecodedBytes: src.base, Members: src.members, Kind: kind, Parts: true, Losses: src.losses, Damage: damage}, nil
}

// partBufferBytes is what of a part is decoded at a time: some tens of frames.
const partBufferBytes = 256 << 10

var partBuffers = sync.Pool{New: func() any {
	b := make([]byte, partBufferBytes)
	return &b
}}

// partSource implements Parts over a decoder.
type partSource struct {
	window  // of the part; at its end where there is none
	decoder PartDecoder
	base    int64 // bytes of the parts before this one
	size    int64 // of this part, as far as it has been decoded
	raw     int64 // where it begins in the file
	part    partState
	members []Member
	losses  Losses
}

// newPartSource makes a source that stands before the first part. It reads into
// buffer.
func newPartSource(d PartDecoder, buffer []byte) *partSource {
	s := &partSource{decoder: d}
	s.window = window{from: partReader{s}, buf: buffer, err: io.EOF}
	return s
}

// partState says whether there is a part at hand.
type partState int

const (
	partNone partState = iota
	partOpen
	partLost
)

var errPartUnread = errors.New("a part was not read to its end before the next one was asked for")

func (s *partSource) NextPart() error {
	if s.part == partOpen {
		if s.err != io.EOF {
			return errPartUnread
		}
		s.members = append(s.members, Member{DecodedBytes: s.base, RawBytes: s.raw})
		s.base += s.size
		if err := boundMembers(len(s.members), s.base); err != nil {
			return err
		}
	}
	s.leave(partNone)
	raw, err := s.decoder.Next()
	if err != nil {
		return err
	}
	s.part, s.raw, s.err = partOpen, raw, nil
	return nil
}

// leave drops what there is of the current part.
func (s *partSource) leave(to partState) {
	s.part, s.size = to, 0
	s.endWith(io.EOF)
}

func (s *partSource) OffsetBytes() int64 { return s.base + s.size - s.sizeBytes() }

// partReader decodes the current part.
type partReader struct{ s *partSource }

func (r partReader) Read(p []byte) (int, error) {
	n, err := r.s.decoder.Read(p)
	if all := r.s.base + r.s.size + int64(n); all > MaxDecodedBytes {
		return 0, errDecodedTooLarge(all)
	}
	r.s.size += int64(n)
	return n, err
}

func (s *partSource) Lose(damage *CorruptError) {
	placed := *damage
	placed.OffsetBytes, placed.Record = s.base, -1 // all of its records are lost
	s.note(placed)
	s.leave(partLost)
}

func (s *partSource) PartName() string { return s.decoder.PartName() }

func (s *partSource) Lack(damage *CorruptError) { s.note(*damage) }

func (s *partSource) note(d CorruptError) {
	d.RawOffset = s.raw
	if len(s.losses.First) < MaxListedLosses { // a name is a string only where it is kept
		d.Part = strings.TrimPrefix(strings.Join([]string{s.PartName(), d.Part}, ", "), ", ")
		d.Part = strings.TrimSuffix(d.Part, ", ")
	}
	s.losses.Add(&d)
}
