package unpack

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

// Parts is the Source of a shard that is made of parts, such as games. Each part is
// sound or damaged by itself. A damaged part is left out, and the next part begins where
// it would have begun. So the decoded shard is the sound parts, one behind the other.
//
// Before the first NextPart, and at the end of each part, the source is at its end:
// Window gives io.EOF there, and Discard io.ErrUnexpectedEOF. If the codec finds damage
// in a part, Window or Discard gives a *CorruptError; the caller must then give the part
// up with Lose.
type Parts interface {
	Source
	// NextPart moves to the next part, and gives io.EOF at the shard's end. A part that
	// was not lost must have been read to its end before, for its checksum is only
	// checked there.
	NextPart() error
	// Lose leaves out the whole part that was read last: OffsetBytes goes back to the
	// part's start. It fills in the place and the part's name in damage.
	Lose(damage *CorruptError)
	// Lack notes damage of a single record of a part that is kept. It puts the part's
	// name before damage.Part.
	Lack(damage *CorruptError)
	// PartName names the current part, for messages; "" if the whole file is the part.
	PartName() string
}

// PartCodec is implemented by codecs whose members are parts. Their NewDecoder returns a
// PartDecoder.
type PartCodec interface {
	Codec
	NewPartDecoder(raw io.Reader, rawOffset int64) (PartDecoder, error)
}

// PartDecoder is a decoder whose members are parts. Damage from Read concerns one part:
// Next then moves to the next part, without decoding the rest of the damaged one. Damage
// from Next concerns the shard, and ends it.
type PartDecoder interface {
	Decoder
	// PartName names the current part, for messages; "" if the whole file is the part.
	// It is valid until the next call of Next.
	PartName() string
}

// OwnCodecs is implemented by formats whose shards can't be recognised, or decoded, by
// the extensions of their names alone.
type OwnCodecs interface {
	Format
	// Takes says whether a shard may have this name.
	Takes(path string) bool
	// Codec is the codec of a shard with this name. byEnding is the codec that the
	// name's extension indicates, or nil.
	Codec(path string, byEnding Codec) Codec
	// SniffRaw says whether a file is a shard of this format although its name indicates
	// another one. Errors are those of reading.
	SniffRaw(raw io.ReaderAt, sizeBytes int64) (bool, error)
}

// Losses are what was left out of a shard that is made of parts. The lists of reasons
// and damages are bounded; the counts are not.
type Losses struct {
	// First are the first damages, in file order.
	First []*CorruptError
	// Reasons counts damages by reason, in the order in which the reasons first came up.
	Reasons []Reason
}

// Reason is why something was left out, and how often.
type Reason struct {
	Text  string
	Count uint64
}

const (
	// MaxListedLosses is how many damages of a shard are listed: enough to see their
	// kind.
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

// CountReason adds to the count of a reason. A list has 16 reasons at most: further ones
// are counted together.
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
