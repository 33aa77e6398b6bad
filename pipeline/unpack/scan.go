package unpack

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

// Summary is what the index pass learned about a shard besides its records.
type Summary struct {
	// DecodedBytes is the size of the decoded shard. For a damaged compressed shard it
	// is the size of the members before the damage.
	DecodedBytes int64
	// Members are the members of a compressed shard, in order, including empty ones; nil
	// if the shard is not compressed.
	Members []Member
	// Points are places inside of members, in order: at most mostPoints, pointBytes from each other and
	// from their members' first bytes, or a multiple of that.
	Points []Point
	// DecoderBytes is about how much memory a decoder of the shard takes at most; 0 if it is not compressed, or
	// made of parts.
	DecoderBytes int64
	// Kind is the kind of the shard's records if the format is Uniform, else "".
	Kind string
	// Damage is what ended the pass early; nil if it came to the shard's end.
	Damage *CorruptError
	// Parts says that the codec is a PartCodec. Then Members are the parts that are
	// kept, and Losses is what was left out while the pass went on.
	Parts  bool
	Losses Losses
}

// Lost is everything that was left out: the losses, and the damage that ended the pass.
func (s *Summary) Lost() Losses {
	l := s.Losses
	if s.Damage != nil {
		l.First = append(slices.Clip(l.First), s.Damage)
		l.Reasons = CountReason(slices.Clone(l.Reasons), s.Damage.Reason, 1)
	}
	return l
}

// Scan runs the index pass over one shard: size raw bytes, decoded by codec (nil for
// none) and cut into records by format. emit gets each record in file order.
//
// Damage ends the pass and is in the summary. --on-corrupt skip keeps all records that
// were emitted before, except those of the damaged member. So when a codec finds damage,
// Scan calls restart and passes a second time over the bytes before that member only. If
// the codec is a PartCodec, damage in a part does not end the pass, and is counted in
// the losses. A shard of no bytes is damaged, unless the format is Emptyable. Errors of reading, refusals and errors of
// emit are returned. What a shard begins with is compared with what it surely is not
// (foreign.go), and refused where it is that.
//
// raw is read from one goroutine at a time:
//
//   - A compressed shard is read forward, in portions of 256 KiB.
//   - An uncompressed shard is read in portions of up to 1 MiB. If there are many bytes
//     between headers, or raw is a ResidentReaderAt and has the headers in memory, only
//     the headers are read. A PortionedReaderAt says how large portions are, and how many
//     bytes are many.
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

	resident ResidentReaderAt // raw, where it is one
	portions Portions
}

func (s *scan) plain(ctx context.Context) (Summary, error) {
	kind, err := s.index(ctx, newFileSource(s.raw, s.resident, s.size, s.portions))
	damage, err := splitDamage(err)
	return Summary{DecodedBytes: s.size, Kind: kind, Damage: damage}, err
}

// index is the format's pass over src, and the kind that it tells, if it does.
func (s *scan) index(ctx context.Context, src Source) (kind string, err error) {
	if err := refuseForeign(s.format, s.codec, src); err != nil {
		return "", err
	}
	if u, ok := s.format.(Uniform); ok {
		return u.IndexKind(ctx, src, s.emit)
	}
	return "", s.format.Index(ctx, src, s.emit)
}

// compressed passes over the shard until nothing damaged is left in what it
// passes over: a member's bytes can't be trusted before its end has been seen,
// and records were emitted from it by then.
// Damage found in a later pass lies before that of the one before it, so this ends.
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

// pass is what one pass over a compressed shard has come to.
type pass struct {
	members      []Member
	points       points
	kind         string
	decodedBytes int64
	decoderBytes int64
	records      int64
	ended        bool          // the format found its end by itself
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
	// What a format says of bytes holds only if their members turn out sound,
	// so the rest is decoded before it is believed.
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
	p.decodedBytes, p.decoderBytes = d.OffsetBytes(), d.most
	p.records = s.records
	return p, err
}

// boundMembers refuses a shard of more than MaxMembers.
func boundMembers(n int, at int64) error {
	if n > MaxMembers {
		return &RefusedError{OffsetBytes: at, Reason: fmt.Sprintf("the file has more than %d compressed members: put more records into each", MaxMembers)}
	}
	return nil
}

// summary is of the last pass; known is the damage that it ended at, if any.
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

// splitDamage takes damage out of an error.
func splitDamage(err error) (*CorruptError, error) {
	var damage *CorruptError
	if errors.As(err, &damage) {
		return damage, nil
	}
	return nil, err
}

// cancellable ends reading when ctx does. It lives as long as one Scan.
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
