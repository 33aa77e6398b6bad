package gzip

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/inflate"
)

var (
	_ format.PointCodec   = Codec{}
	_ format.PointDecoder = (*decoder)(nil)
)

// NewDecoderAt implements format.PointCodec. The point's State is its window.
func (Codec) NewDecoderAt(raw io.Reader, p format.Point) (format.Decoder, error) {
	if p.MemberBytes < 0 || p.RawBits < 0 {
		return nil, errors.New("a point is before its member")
	}
	window, err := unpackWindow(p.State)
	if err == nil && int64(len(window)) != min(p.MemberBytes, windowBytes) {
		err = errWindow
	}
	if err != nil {
		return nil, fmt.Errorf("the point at %d bytes of its member: %w", p.MemberBytes, err)
	}
	s := states.Get().(*state)
	s.raw.Reset(raw, p.RawBytes())
	s.carry.n = 0
	s.inflate.ResetAt(window, uint(p.RawBits&7))
	return &decoder{
		state: s, member: p.MemberRawBytes, entered: true, seen: true,
		crc: p.CRC32, size: uint32(p.MemberBytes), before: p.MemberBytes, data: p.RawBytes(),
	}, nil
}

// noting makes points. A point is complete once enough bytes after it have been decoded to know to
// which bytes they refer.
type noting struct {
	note   func(format.Point) int64
	least  int64
	last   byte   // of the file, used last: some of its bits may be left
	raw    []byte // from the byte that contains the point's first bit, if there is a point
	point  format.Point
	window []byte // before point; empty for none
}

// mostPendingBytes bounds what is kept of the file after a point: DEFLATE data of the window's size
// takes little more, but empty blocks may take any number of bytes.
const mostPendingBytes = 4 * windowBytes

// leastPointBytes is the least distance of points: it guarantees that one has been noted before the
// next one comes, however the file is read.
const leastPointBytes = 128 << 10

// NotePoints implements format.PointDecoder.
func (d *decoder) NotePoints(leastBytes int64, note func(format.Point) int64) {
	d.notes = &noting{note: note, least: max(leastBytes, leastPointBytes)}
}

// Expect implements format.PointDecoder.
func (d *decoder) Expect(next func(memberBytes int64) (format.Point, bool)) { d.expects = next }

// lookOut makes inflate stop at the next point, searching after memberBytes of the member.
func (d *decoder) lookOut(memberBytes int64) {
	at := int64(-1)
	switch {
	case d.notes != nil && d.notes.least < math.MaxInt64-memberBytes:
		at = memberBytes + d.notes.least
	case d.expects != nil:
		var some bool
		if d.expected, some = d.expects(memberBytes); some && d.expected.MemberRawBytes == d.member {
			at = d.expected.MemberBytes
		}
	}
	if d.ahead = at; at >= 0 {
		at -= d.before
	}
	d.inflate.StopAt(at)
}

// position returns inflate's position: bits of the file and bytes of the member.
func (d *decoder) position() (rawBits, memberBytes int64) {
	rawBits, memberBytes = d.inflate.Position()
	return 8*d.data + rawBits, d.before + memberBytes
}

// stopped is called at the beginning of a block at which lookOut asked inflate to stop.
func (d *decoder) stopped() error {
	rawBits, memberBytes := d.position()
	if d.notes != nil {
		d.notes.point = format.Point{MemberBytes: memberBytes, MemberRawBytes: d.member, RawBits: rawBits, CRC32: d.crc}
		d.notes.window = append(d.notes.window[:0], d.inflate.History()...)
		d.notes.raw = d.notes.raw[:0]
		if rawBits&7 != 0 {
			d.notes.raw = append(d.notes.raw, d.notes.last)
		}
		return nil
	}
	if x := &d.expected; memberBytes != x.MemberBytes || rawBits != x.RawBits || d.crc != x.CRC32 {
		return d.damage(fmt.Sprintf("the gzip member's first %d bytes are not what they were when it was indexed", memberBytes))
	}
	d.lookOut(memberBytes)
	return nil
}

// noted adds what was used of the file, and notes the previous point once that is enough.
func (d *decoder) noted(used []byte, s inflate.Status) {
	n := d.notes
	if len(used) > 0 {
		n.last = used[len(used)-1]
	}
	if len(n.window) == 0 {
		return
	}
	n.raw = append(n.raw, used...)
	_, memberBytes := d.position()
	switch {
	case s == inflate.Bad || len(n.raw) > mostPendingBytes: // give up; the next block may do
		n.point.MemberBytes = memberBytes - n.least
	case s != inflate.End && memberBytes-n.point.MemberBytes < windowBytes:
		return
	default:
		n.point.State = packWindow(n.window, n.raw, uint(n.point.RawBits&7))
		n.least = max(n.note(n.point), leastPointBytes)
	}
	n.window = n.window[:0]
	d.lookOut(n.point.MemberBytes)
}

// AtPoint implements format.PointDecoder.
func (d *decoder) AtPoint() error {
	if d.err != nil || d.expects == nil {
		return d.err
	}
	for d.inMember && d.behind == nil && len(d.inflate.Window()) == 0 {
		if _, memberBytes := d.position(); d.ahead != memberBytes {
			return nil // it was compared when it was decoded
		}
		d.behind = d.decode()
	}
	if d.err = d.behind; d.err == nil || d.err == io.EOF {
		d.err = d.damage(fmt.Sprintf("the gzip member differs after its first %d bytes from when it was indexed", d.expected.MemberBytes))
	}
	return d.err
}

// windowBytes is the largest distance to which DEFLATE data refers.
const windowBytes = 32 << 10

// packWindow packs the decoded bytes before a point. Bytes to which no data after it refers become
// zeros ("sparse windows" of rapidgzip, Knespel and Brunst 2023). raw is what follows the point in
// the file, from the byte that contains its first bit: enough for windowBytes decoded bytes, or
// everything.
func packWindow(window, raw []byte, bit uint) []byte {
	return windowEncoder().EncodeAll(sparse(window, raw, bit), nil)
}

// sparse returns a copy of window with those bytes cleared to which raw does not refer.
//
// raw is decoded three times: with the window as history, and with the low and the high parts of
// its bytes' positions. A byte copied from the window appears in each together with its position; a
// literal is the same in all three.
func sparse(window, raw []byte, bit uint) []byte {
	scratch := sparsers.Get().(*sparser)
	defer sparsers.Put(scratch)
	var places [2][windowBytes]byte
	for i := range window {
		places[0][i], places[1][i] = byte(i), byte(i>>8)|0x80
	}
	var decoded [3][]byte
	for i, history := range [][]byte{window, places[0][:len(window)], places[1][:len(window)]} {
		decoded[i] = scratch.decode(i, history, raw, bit)
	}
	kept := make([]byte, len(window))
	for i, b := range decoded[0] {
		low, high := decoded[1][i], decoded[2][i]
		// A literal may look like a position; then at most one byte too many is kept.
		if place := int(high&0x7f)<<8 | int(low); high >= 0x80 && place < len(window) && window[place] == b {
			kept[place] = b
		}
	}
	return kept
}

// sparser is the scratch memory of sparse, about 200 KiB.
type sparser struct {
	decoder inflate.Decoder
	out     [3][windowBytes]byte
}

var sparsers = sync.Pool{New: func() any { return new(sparser) }}

// decode decodes up to windowBytes after a history, into the i-th buffer.
func (s *sparser) decode(i int, history, raw []byte, bit uint) []byte {
	s.decoder.ResetAt(history, bit)
	out := s.out[i][:0]
	for {
		used, status := s.decoder.Decode(raw)
		raw = raw[used:]
		n := min(len(s.decoder.Window()), windowBytes-len(out))
		out = append(out, s.decoder.Window()[:n]...)
		s.decoder.Take(len(s.decoder.Window()))
		if status != inflate.Output || len(out) == windowBytes {
			return out
		}
	}
}

// windowEncoder and windowDecoder use Zstandard. Both are safe for concurrent use.
var windowEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithWindowSize(windowBytes), zstd.WithEncoderCRC(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // its options are constant
	}
	return e
})

var windowDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(windowBytes), zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err) // its options are constant
	}
	return d
})

var errWindow = errors.New("it has no window that can be unpacked: lsiofs index --rebuild makes the index again")

// unpackWindow reverses packWindow.
func unpackWindow(packed []byte) ([]byte, error) {
	window, err := windowDecoder().DecodeAll(packed, make([]byte, 0, windowBytes))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errWindow, err)
	}
	return window, nil
}
