package format

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Entry is a place in a compressed shard where decoding can start, as an offset in the file and in
// the decoded shard: the first byte of a member, or a Point.
type Entry struct {
	RawBytes, DecodedBytes int64
	// Point is the number of the point in its shard, from 1; 0 for a member's first byte.
	Point int
}

// Decoded reads the decoded bytes of a compressed shard from an entry to the shard's end, across
// members. Both the read path and the index pass decode with it. It is not safe for concurrent use.
//
// Damage is a *CorruptError with offsets in the shard; other errors are read errors. All errors are
// sticky.
type Decoded struct {
	decoder  Decoder
	offset   int64 // in the decoded shard, of the next byte
	start    int64 // in the decoded shard, of the current member
	inMember bool
	most     int64 // largest memory of a decoder of one member
	err      error
	onMember func(Member) error // may be nil
}

// NewDecoded opens a decoder of codec for raw, a file of sizeBytes bytes, at a member. It reads in
// portions of 256 KiB, or, with a RangeCodec, what its decoder asks for. The caller closes it.
func NewDecoded(codec Codec, raw io.ReaderAt, sizeBytes int64, at Entry) (*Decoded, error) {
	if at.RawBytes < 0 || at.RawBytes > sizeBytes {
		return nil, fmt.Errorf("entry at byte %d of a file of %d bytes", at.RawBytes, sizeBytes)
	}
	if ranges, ok := codec.(RangeCodec); ok {
		return &Decoded{decoder: ranges.NewRangeDecoder(exactReaderAt{raw}, sizeBytes, RangeStart{RawBytes: at.RawBytes}), offset: at.DecodedBytes}, nil
	}
	section := &forwardReader{raw: raw, off: at.RawBytes, size: sizeBytes}
	decoder, err := codec.NewDecoder(section, at.RawBytes)
	if err != nil {
		return nil, fmt.Errorf("open %s decoder at byte %d: %w", codec.Name(), at.RawBytes, err)
	}
	return &Decoded{decoder: decoder, offset: at.DecodedBytes}, nil
}

// Read reads decoded bytes. It returns io.EOF after the last member's checksum was verified, if
// nothing follows the member.
func (d *Decoded) Read(p []byte) (int, error) {
	for len(p) > 0 && d.err == nil {
		if !d.inMember && !d.next() {
			break
		}
		n, err := d.decoder.Read(p)
		d.offset += int64(n)
		switch {
		case err == io.EOF:
			d.inMember = false
		case err != nil:
			d.fail(err)
		case d.offset > MaxDecodedBytes:
			d.fail(errDecodedTooLarge(d.offset))
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, d.err
}

func errDecodedTooLarge(at int64) error {
	return &RefusedError{OffsetBytes: at, Reason: fmt.Sprintf("the shard decodes to more than %d bytes: split it", int64(MaxDecodedBytes))}
}

// next moves to the next member.
func (d *Decoded) next() bool {
	d.start = d.offset
	raw, err := d.decoder.Next()
	if err != nil {
		d.fail(err)
		return false
	}
	d.inMember = true
	if m, ok := unwrapped[Measured](d.decoder); ok {
		d.most = max(d.most, m.MemberBytes())
	} else {
		d.most = max(d.most, d.decoder.MemoryBytes())
	}
	if d.onMember != nil {
		if err := d.onMember(Member{DecodedBytes: d.offset, RawBytes: raw}); err != nil {
			d.fail(err)
			return false
		}
	}
	return true
}

// DecoderBytes returns approximately the largest memory of a decoder of the members so far.
func (d *Decoded) DecoderBytes() int64 { return d.most }

// fail makes err sticky. The decoder has set the damaged member's offset in the file; fail sets its
// offset in the decoded shard.
func (d *Decoded) fail(err error) {
	var damage *CorruptError
	if errors.As(err, &damage) {
		placed := *damage
		placed.OffsetBytes = d.start
		err = &placed
	}
	d.err = err
}

// notePoints registers add to be called with points, if the codec has some.
func (d *Decoded) notePoints(leastBytes int64, add func(Point) (leastBytes int64)) {
	if p, ok := unwrapped[PointDecoder](d.decoder); ok {
		p.NotePoints(leastBytes, func(x Point) int64 {
			x.DecodedBytes = d.start + x.MemberBytes
			return add(x)
		})
	}
}

// unwrapped returns the first decoder that is a T: d, or one that it wraps and returns by Unwrap.
func unwrapped[T any](d Decoder) (found T, ok bool) {
	for {
		if found, ok = d.(T); ok {
			return found, true
		}
		w, wraps := d.(interface{ Unwrap() Decoder })
		if !wraps {
			return found, false
		}
		d = w.Unwrap()
	}
}

// OffsetBytes returns the offset in the decoded shard of the next byte.
func (d *Decoded) OffsetBytes() int64 { return d.offset }

// MemoryBytes returns approximately how much memory the decoder holds.
func (d *Decoded) MemoryBytes() int64 { return d.decoder.MemoryBytes() }

// Close releases the decoder.
func (d *Decoded) Close() { d.decoder.Close() }

// forwardReader reads a file of size bytes from off to its end. An earlier end is not damage: the
// file has changed.
type forwardReader struct {
	raw       io.ReaderAt
	off, size int64
}

func (f *forwardReader) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), f.size-f.off)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := f.raw.ReadAt(p, f.off)
	if n < len(p) {
		return 0, shortRead(f.off, len(p), n, err)
	}
	f.off += int64(n)
	return n, nil
}

// shortRead returns the error of a ReadAt that returned n of want bytes at off, all of which the
// file had when it was listed.
func shortRead(off int64, want, n int, err error) error {
	if err == nil || err == io.EOF {
		err = fmt.Errorf("the file is shorter than it was: %w", io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("only %[3]d of the bytes [%[1]d, %[2]d) could be read: %[4]w", off, off+int64(want), n, err)
}

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

// rawBufferBytes is how much of a compressed shard is read at a time: enough to make the cost of a
// read small compared with that of decoding the bytes.
const rawBufferBytes = 256 << 10

// Raw reads a shard's raw bytes forward for a Decoder. It buffers in reads of 256 KiB, counts
// bytes, and keeps storage failures separate from damage. The zero value is ready for Reset. It is
// not safe for concurrent use.
type Raw struct {
	buffer *bufio.Reader
	from   countedReader
}

// Reset makes r read src, whose first byte is at offset offsetBytes of the file.
func (r *Raw) Reset(src io.Reader, offsetBytes int64) {
	r.from = countedReader{src: src, next: offsetBytes}
	if r.buffer == nil {
		r.buffer = bufio.NewReaderSize(&r.from, rawBufferBytes)
		return
	}
	r.buffer.Reset(&r.from)
}

// Release drops the reader passed to Reset and keeps the buffer.
func (r *Raw) Release() { r.Reset(eof{}, 0) }

// Buffer returns the buffered input.
func (r *Raw) Buffer() *bufio.Reader { return r.buffer }

// OffsetBytes returns the offset in the file of the next byte of Buffer.
func (r *Raw) OffsetBytes() int64 { return r.from.next - int64(r.buffer.Buffered()) }

// ReadPart reads into p from the next *left bytes, and subtracts the number of bytes read from
// *left. If the file ends before them, it returns io.ErrUnexpectedEOF.
func (r *Raw) ReadPart(p []byte, left *int64) (int, error) {
	n, err := r.buffer.Read(p[:min(int64(len(p)), *left)])
	*left -= int64(n)
	switch {
	case err != io.EOF:
		return n, err
	case n == 0:
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

// Skip skips n bytes. It returns Failure if reading failed, and io.ErrUnexpectedEOF if the file
// ends before.
func (r *Raw) Skip(n int64) error {
	if _, err := io.CopyN(io.Discard, r.buffer, n); err != nil {
		if r.Failure() != nil {
			return r.Failure()
		}
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Failure returns the error with which reading failed, or nil; io.EOF is not a failure. Callers
// must check it before they treat missing bytes as damage.
func (r *Raw) Failure() error { return r.from.failure }

// MemoryBytes returns the size of the buffer.
func (r *Raw) MemoryBytes() int64 { return rawBufferBytes }

// countedReader counts the bytes from src, and makes its failures sticky, which bufio does not.
type countedReader struct {
	src     io.Reader
	next    int64
	failure error
}

func (c *countedReader) Read(p []byte) (int, error) {
	if c.failure != nil {
		return 0, c.failure
	}
	n, err := c.src.Read(p)
	c.next += int64(n)
	if err != nil && err != io.EOF {
		c.failure = err
	}
	return n, err
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
