package format

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

// Parts is the Source of a shard that is made of parts, such as games. Each part is intact or
// damaged independently. A damaged part is left out, and the next part begins where it would have
// begun. So the decoded shard is the concatenation of the intact parts.
//
// Before the first NextPart, and at the end of each part, the source is at its end: Window returns
// io.EOF, and Discard io.ErrUnexpectedEOF. If the codec finds damage in a part, Window or Discard
// returns a *CorruptError; the caller must then drop the part with Lose.
type Parts struct {
	window  // of the part; at its end if there is none
	decoder PartDecoder
	base    int64 // bytes of the parts before this one
	size    int64 // of this part, as far as decoded
	raw     int64 // offset of its beginning in the file
	part    partState
	members []Member
	losses  Losses
	memory  int64 // the largest of the decoder, at the parts' ends
	ranges  bool  // of a RangeCodec
	points  points
}

// PartCodec is implemented by codecs whose members are parts. Their NewDecoder returns a
// PartDecoder.
type PartCodec interface {
	Codec
	NewPartDecoder(raw io.Reader, rawOffset int64) (PartDecoder, error)
}

// PartDecoder is a decoder whose members are parts. Damage from Read concerns one part: Next then
// moves to the next part, without decoding the rest of the damaged one. Damage from Next concerns
// the shard, and ends it.
type PartDecoder interface {
	Decoder
	// PartName returns the name of the current part, for messages; "" if the whole file is the
	// part. It is valid until the next call of Next.
	PartName() string
}

// RangeCodec is implemented by part codecs whose parts are decoded from several ranges of the file:
// row groups of Parquet, whose columns lie apart. Such a codec belongs to one shard: what it decodes
// to depends on the format's parameters and on the shard's path.
//
// The RawBytes of a part only distinguish it from the shard's other parts, and are ascending. No
// checksum is verified at a part's end. Damage names the part and its place in the file itself: its
// RawOffset is -1.
type RangeCodec interface {
	PartCodec
	// Decoding describes on what the decoded bytes depend besides the file's: two codecs with the
	// same text decode equal files to equal bytes.
	Decoding() string
	// EveryRecord reports whether every record is an entry point, wherever decoding can start.
	EveryRecord() bool
	// NewRangeDecoder returns a decoder of raw, a file of sizeBytes. Its first Next moves to the
	// part at start. It reads when it is used, from the goroutine that uses it.
	NewRangeDecoder(raw io.ReaderAt, sizeBytes int64, start RangeStart) RangeDecoder
}

// RangeDecoder is a decoder of a RangeCodec.
type RangeDecoder interface {
	PartDecoder
	// NotePoints is that of PointDecoder. Points are between records. Their RawBits are only
	// ascending, between those of their part and the next one.
	NotePoints(leastBytes int64, note func(Point) (leastBytes int64))
	// Outline returns what the decoder has read about the shard as a whole, for other decoders of
	// the same version of it; nil before the first Next.
	Outline() Outline
}

// Outline describes a shard of a RangeCodec. It is immutable and safe for concurrent use.
type Outline interface {
	// MemoryBytes returns approximately how much memory it takes.
	MemoryBytes() int64
}

// RangeStart is where a decoder of a RangeCodec begins. The zero value is the shard's beginning.
type RangeStart struct {
	// RawBytes is that of the part.
	RawBytes int64
	// State is that of a point in the part; nil for the part's beginning.
	State []byte
	// Records is the number of records of the shard before it.
	Records int64
	// Outline is that of an earlier decoder of the shard, or nil: then it is read.
	Outline Outline
}

// Coded is implemented by formats that choose the codecs of their shards.
type Coded interface {
	Format
	// Codec returns the codec of a shard with this name. byEnding is the codec that the name's
	// extension indicates, or nil.
	Codec(path string, byEnding Codec) Codec
}

// OwnCodecs is implemented by formats whose shards can't be recognized, or decoded, by the
// extensions of their names alone.
type OwnCodecs interface {
	Coded
	// Takes reports whether a shard may have this name.
	Takes(path string) bool
	// SniffRaw reports whether a file is a shard of this format although its name indicates another
	// one. Errors are read errors.
	SniffRaw(raw io.ReaderAt, sizeBytes int64) (bool, error)
}

// Losses are what was left out of a shard that is made of parts. The lists of reasons and damages
// are bounded; the counts are not.
type Losses struct {
	// First are the first damages, in file order.
	First []*CorruptError
	// Reasons counts damages by reason, in the order in which the reasons first occurred.
	Reasons []Reason
}

// Reason is why something was left out, and how often.
type Reason struct {
	Text  string
	Count uint64
}

const (
	// MaxListedLosses is how many damages of a shard are listed: enough to show their kind.
	MaxListedLosses = 8
	// maxReasons bounds the number of distinct reasons: formats have a few, codecs have messages of
	// their own.
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

// CountReason adds to the count of a reason. A list has at most 16 reasons: further ones are
// counted together.
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

// scanParts is the index pass over a shard that is made of parts. It needs no second pass: formats
// emit the records of a part only after reading its end.
func (s *scan) scanParts(ctx context.Context, codec PartCodec) (Summary, error) {
	d, err := s.openParts(codec)
	if err != nil {
		return Summary{}, err
	}
	defer d.Close()
	buffer := partBuffers.Get().(*[]byte)
	defer partBuffers.Put(buffer)
	src := newPartSource(d, *buffer)
	ranges, _ := codec.(RangeCodec)
	if src.ranges = ranges != nil; src.ranges {
		src.notePoints(d.(RangeDecoder))
	}
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
	sum := Summary{DecodedBytes: src.base, Members: src.members, Kind: kind, Parts: true, Losses: src.losses, Damage: damage}
	if src.ranges {
		sum.EveryRecord, sum.DecoderBytes, sum.Points = ranges.EveryRecord(), src.memory, src.points.all
	}
	return sum, nil
}

// openParts opens the decoder.
func (s *scan) openParts(codec PartCodec) (PartDecoder, error) {
	if r, ok := codec.(RangeCodec); ok {
		return r.NewRangeDecoder(exactReaderAt{s.raw}, s.size, RangeStart{}), nil
	}
	return codec.NewPartDecoder(&forwardReader{raw: s.raw, size: s.size}, 0)
}

// rangePointBytes is the smallest distance between the points of a RangeCodec's shard: a jump
// decodes at most this much plus a page.
const rangePointBytes = 1 << 20

// notePoints collects the points of parts that are not lost.
func (s *Parts) notePoints(d RangeDecoder) {
	s.points.least = rangePointBytes
	d.NotePoints(rangePointBytes, func(p Point) int64 {
		p.DecodedBytes = s.base + p.MemberBytes
		return s.points.add(p)
	})
}

// dropPoints drops the points of the current part.
func (s *Parts) dropPoints() {
	n := len(s.points.all)
	for n > 0 && s.points.all[n-1].DecodedBytes > s.base {
		n--
	}
	s.points.all = s.points.all[:n]
}

// exactReaderAt reads a file whose reader asks for no bytes after its end. An earlier end is not
// damage: the file has changed.
type exactReaderAt struct{ raw io.ReaderAt }

func (e exactReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := e.raw.ReadAt(p, off)
	if n < len(p) {
		return n, shortRead(off, len(p), n, err)
	}
	return n, nil
}

// partBufferBytes is how much of a part is decoded at a time: some tens of frames.
const partBufferBytes = 256 << 10

var partBuffers = sync.Pool{New: func() any {
	b := make([]byte, partBufferBytes)
	return &b
}}

// newPartSource returns a source positioned before the first part. It reads into buffer.
func newPartSource(d PartDecoder, buffer []byte) *Parts {
	s := &Parts{decoder: d}
	s.window = window{from: partReader{s}, buf: buffer, err: io.EOF}
	return s
}

// partState is the state of the current part.
type partState int

const (
	partNone partState = iota
	partOpen
	partLost
)

var errPartUnread = errors.New("a part was not read to its end before the next one was asked for")

// NextPart moves to the next part, and returns io.EOF at the shard's end. Unless it was lost, the
// previous part must have been read to its end, because its checksum is only verified there.
func (s *Parts) NextPart() error {
	if s.part == partOpen {
		if s.err != io.EOF {
			return errPartUnread
		}
		if s.size > 0 || !s.ranges { // decoding never begins at an empty one
			s.members = append(s.members, Member{DecodedBytes: s.base, RawBytes: s.raw})
		}
		s.base += s.size
		s.memory = max(s.memory, s.decoder.MemoryBytes())
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

// leave drops what is left of the current part.
func (s *Parts) leave(to partState) {
	s.part, s.size = to, 0
	s.endWith(io.EOF)
}

// Decoder returns the decoder of the parts, which must not be read or moved.
func (s *Parts) Decoder() PartDecoder { return s.decoder }

func (s *Parts) OffsetBytes() int64 { return s.base + s.size - s.sizeBytes() }

// partReader decodes the current part.
type partReader struct{ s *Parts }

func (r partReader) Read(p []byte) (int, error) {
	n, err := r.s.decoder.Read(p)
	if all := r.s.base + r.s.size + int64(n); all > MaxDecodedBytes {
		return 0, errDecodedTooLarge(all)
	}
	r.s.size += int64(n)
	return n, err
}

// Lose leaves out the whole part that was read last: OffsetBytes returns to the part's start. It
// fills in the place in damage and, unless the codec is a RangeCodec, the part's name.
func (s *Parts) Lose(damage *CorruptError) {
	placed := *damage
	placed.OffsetBytes, placed.Record = s.base, -1 // all of its records are lost
	s.note(placed)
	s.dropPoints()
	s.leave(partLost)
}

// PartName returns the name of the current part, for messages; "" if the whole file is the part.
func (s *Parts) PartName() string { return s.decoder.PartName() }

// Lack notes damage of a single record of a part that is kept. Unless the codec is a RangeCodec, it
// prepends the part's name to damage.Part.
func (s *Parts) Lack(damage *CorruptError) { s.note(*damage) }

func (s *Parts) note(d CorruptError) {
	if !s.ranges { // a row group is not at one place of the file
		d.RawOffset = s.raw
	}
	if !s.ranges && len(s.losses.First) < MaxListedLosses { // the name is formatted only if it is kept
		d.Part = strings.TrimPrefix(strings.Join([]string{s.PartName(), d.Part}, ", "), ", ")
		d.Part = strings.TrimSuffix(d.Part, ", ")
	}
	s.losses.Add(&d)
}
