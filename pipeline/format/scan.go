package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Member is one gzip member, zstd frame or lz4 frame: the offsets of its first byte in
// the decoded shard and in the file.
type Member struct {
	DecodedBytes, RawBytes int64
}

// Summary is what the index pass found out about a shard besides its records.
type Summary struct {
	// DecodedBytes is the size of the decoded shard. For a damaged compressed shard it
	// is the size of the members before the damage.
	DecodedBytes int64
	// Members are the members of a compressed shard, in order, including empty ones; nil
	// if the shard is not compressed.
	Members []Member
	// Points are places inside members, in order: at most mostPoints, which are pointBytes, or a
	// multiple of it, apart from each other and from their members' first bytes.
	Points []Point
	// DecoderBytes is approximately the largest memory of a decoder of the shard; 0 if it is not
	// compressed, or made of parts that are not those of a RangeCodec.
	DecoderBytes int64
	// Kind is the kind of the shard's records if the format is Uniform, else "".
	Kind string
	// Damage is what ended the pass early; nil if it reached the shard's end.
	Damage *CorruptError
	// Parts means that the codec is a PartCodec. Then Members are the parts that are kept, and
	// Losses is what was left out without ending the pass.
	Parts  bool
	Losses Losses
	// EveryRecord means that every record is an entry point, not only those with which members
	// begin.
	EveryRecord bool
}

// Lost returns everything that was left out: the losses, and the damage that ended the pass.
func (s *Summary) Lost() Losses {
	l := s.Losses
	if s.Damage != nil {
		l.First = append(slices.Clip(l.First), s.Damage)
		l.Reasons = CountReason(slices.Clone(l.Reasons), s.Damage.Reason, 1)
	}
	return l
}

// Scan runs the index pass over one shard: size raw bytes, decoded by codec (nil for none) and cut
// into records by format. It calls emit for each record in file order.
//
// Damage ends the pass and is in the summary. --on-corrupt skip keeps all records that were emitted
// before, except those of the damaged member. So when a codec finds damage, Scan calls restart and
// makes a second pass over only the bytes before that member. If the codec is a PartCodec, damage
// in a part does not end the pass, and is counted in the losses. An empty shard is damaged, unless
// the format is Emptyable. Read errors, refusals and errors of emit are returned. A shard whose
// first bytes show that it is a file of another kind (foreign.go) is refused.
//
// raw is read from one goroutine at a time:
//
//   - A compressed shard is read forward, in portions of 256 KiB.
//   - An uncompressed shard is read in portions of up to 1 MiB. If there are many bytes between
//     headers, or raw is a ResidentReaderAt and has the headers in memory, only the headers are
//     read. A PortionedReaderAt determines the size of portions, and how many bytes are many.
func Scan(ctx context.Context, format Format, codec Codec, raw io.ReaderAt, size int64, emit func(Extent) error, restart func()) (Summary, error) {
	if _, empty := format.(Emptyable); size == 0 && (codec != nil || !empty) {
		return Summary{Damage: &CorruptError{Record: -1, RawOffset: -1, Reason: "the file is empty"}}, nil
	}
	if size > MaxShardBytes {
		return Summary{}, &RefusedError{Reason: fmt.Sprintf("the file has %d bytes, more than the %d that are read: split it", size, int64(MaxShardBytes))}
	}
	s := scan{format: format, codec: codec, raw: cancellable{ctx: ctx, raw: raw}, size: size}
	s.resident, _ = raw.(ResidentReaderAt)
	s.portions = defaultPortions
	if p, ok := raw.(PortionedReaderAt); ok {
		s.portions = p.Portions()
	}
	s.emit = func(e Extent) error {
		s.records++
		return emit(e)
	}
	if codec == nil {
		return s.plain(ctx)
	}
	if parts, ok := codec.(PartCodec); ok {
		return s.scanParts(ctx, parts)
	}
	return s.compressed(ctx, restart)
}

// scan is one run of Scan.
type scan struct {
	format  Format
	codec   Codec
	raw     io.ReaderAt
	size    int64
	emit    func(Extent) error
	records int64 // emitted since the last restart

	resident ResidentReaderAt // raw, if it implements that
	portions Portions
}

func (s *scan) plain(ctx context.Context) (Summary, error) {
	kind, err := s.index(ctx, newFileSource(s.raw, s.resident, s.size, s.portions))
	damage, err := splitDamage(err)
	return Summary{DecodedBytes: s.size, Kind: kind, Damage: damage}, err
}

// index runs the format's pass over src, and returns the kind if the format is Uniform.
func (s *scan) index(ctx context.Context, src Source) (kind string, err error) {
	if err := refuseForeign(s.format, s.codec, src); err != nil {
		return "", err
	}
	if u, ok := s.format.(Uniform); ok {
		return u.IndexKind(ctx, src, s.emit)
	}
	return "", s.format.Index(ctx, src, s.emit)
}

// compressed repeats the pass over the shard until no damage is left in the bytes covered: a
// member's bytes can't be trusted before its end has been read, and by then records were emitted
// from it. Damage found in a later pass is before that of the previous one, so this terminates.
func (s *scan) compressed(ctx context.Context, restart func()) (Summary, error) {
	limit, known := int64(math.MaxInt64), (*CorruptError)(nil)
	for {
		p, err := s.pass(ctx, limit, known)
		if err != nil {
			return Summary{}, err
		}
		if p.codecDamage == nil || p.codecDamage == known {
			return p.summary(known)
		}
		limit, known = p.codecDamage.OffsetBytes, p.codecDamage
		s.records = 0
		restart()
	}
}

// pass is the result of one pass over a compressed shard.
type pass struct {
	members      []Member
	points       points
	kind         string
	decodedBytes int64
	decoderBytes int64
	records      int64
	ended        bool          // the format reached its end by itself
	codecDamage  *CorruptError // the first damaged member
	formatDamage *CorruptError
	refused      error
}

func (s *scan) pass(ctx context.Context, limit int64, known *CorruptError) (pass, error) {
	p := pass{points: points{least: pointBytes}}
	d, err := NewDecoded(s.codec, s.raw, s.size, Entry{})
	if err != nil {
		return p, err
	}
	defer d.Close()
	d.onMember = func(m Member) error {
		if known == nil || m.RawBytes < known.RawOffset {
			p.members = append(p.members, m)
		}
		return boundMembers(len(p.members), m.DecodedBytes)
	}
	d.notePoints(pointBytes, p.points.add)
	src := newDecodedSource(d, limit, known)
	p.kind, err = s.index(ctx, src)
	// What a format finds in bytes is valid only if their members turn out intact, so the rest is
	// decoded first.
	var refused *RefusedError
	damage, other := splitDamage(err)
	switch {
	case errors.As(other, &refused):
		p.refused = other
	case other != nil:
		return p, other
	case damage != nil && damage.RawOffset < 0:
		p.formatDamage = damage
	}
	p.ended = err == nil
	p.codecDamage, err = splitDamage(src.drain())
	p.decodedBytes, p.decoderBytes = d.OffsetBytes(), d.DecoderBytes()
	p.records = s.records
	return p, err
}

// boundMembers refuses a shard of more than MaxMembers members.
func boundMembers(n int, at int64) error {
	if n > MaxMembers {
		return &RefusedError{OffsetBytes: at, Reason: fmt.Sprintf("the file has more than %d compressed members: put more records into each", MaxMembers)}
	}
	return nil
}

// summary returns the summary of the last pass; known is the damage at which it ended, if any.
func (p pass) summary(known *CorruptError) (Summary, error) {
	if p.refused != nil {
		return Summary{}, p.refused
	}
	sum := Summary{DecodedBytes: p.decodedBytes, Members: p.members, Points: p.points.all, DecoderBytes: p.decoderBytes, Kind: p.kind, Damage: p.formatDamage}
	if sum.Damage == nil && known != nil {
		placed := *known
		if !p.ended {
			placed.Record = p.records
		}
		sum.Damage = &placed
	}
	return sum, nil
}

// splitDamage separates damage from other errors.
func splitDamage(err error) (*CorruptError, error) {
	var damage *CorruptError
	if errors.As(err, &damage) {
		return damage, nil
	}
	return nil, err
}

// cancellable ends reading when ctx ends. It lives as long as one Scan.
type cancellable struct {
	ctx context.Context
	raw io.ReaderAt
}

func (c cancellable) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.raw.ReadAt(p, off)
}
