package format

import (
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
// portions of 256 KiB. The caller closes it.
func NewDecoded(codec Codec, raw io.ReaderAt, sizeBytes int64, at Entry) (*Decoded, error) {
	if at.RawBytes < 0 || at.RawBytes > sizeBytes {
		return nil, fmt.Errorf("entry at byte %d of a file of %d bytes", at.RawBytes, sizeBytes)
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
