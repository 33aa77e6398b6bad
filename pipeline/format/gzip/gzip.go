// Package gzip decodes whole-shard gzip compression (RFC 1952), member by member.
//
//	shard:  member  member  …  member  zero bytes
//	member: 1f 8b 08 flags mtime xfl os, [extra] [name] [comment] [crc16],
//	        deflate data, u32le crc32 of the decoded bytes, u32le their number
//
// Any number of members may follow each other. Zero bytes after the last one are skipped. Anything
// else there is damage at that place, including a member after zero bytes. The start of a member
// can only be found by decoding the member before it.
//
// # Points
//
// A member can be entered at the first bit of each of its blocks, given the preceding 32 KiB.
// NotePoints notes some of these points: the place, the checksum of everything before, and the 32
// KiB, packed, with all bytes zeroed to which the following data does not refer (point.go).
// NewDecoderAt resumes there, with the checksum, so that the member's end verifies it. Expect
// compares each point that is passed, so that a part of a member is verified by the points before
// and after it.
package gzip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/inflate"
)

// Codec is the format.Codec of gzip.
type Codec struct{}

var _ format.Codec = Codec{}

// Name returns "gzip".
func (Codec) Name() string { return "gzip" }

// NewDecoder returns a decoder of raw, which begins at a member's first byte.
func (Codec) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	s := states.Get().(*state)
	s.raw.Reset(raw, rawOffset)
	return &decoder{state: s}, nil
}

// states are decoders that are not in use. Each takes about 380 KiB to allocate and clear, more
// than the size of many shards in a dataset of small ones. Idle ones are freed by the garbage
// collector; those in use are bounded by their owner.
var states = sync.Pool{New: func() any { return new(state) }}

// state is what a decoder reuses.
type state struct {
	raw     format.Raw
	inflate inflate.Decoder
	carry   carry
	scratch [512]byte // the header's fixed part, its texts, and the trailer
}

// stateBytes is the memory of a decoder without its input.
const stateBytes = inflate.MemoryBytes + carryBytes + 1024

var magic = []byte{0x1f, 0x8b}

type decoder struct {
	*state
	member   int64 // first byte of the current member
	inMember bool
	behind   error  // what follows the window: io.EOF after the deflate data
	crc      uint32 // of the bytes decoded from it
	size     uint32
	seen     bool // a member has been seen
	err      error

	entered bool  // at a point; the first Next returns its member
	before  int64 // bytes of the member before those decoded by inflate
	data    int64 // offset in the file of the first byte passed to inflate
	ahead   int64 // bytes of the member before the next point to stop at; below 0: none
	notes   *noting
	expects func(memberBytes int64) (format.Point, bool)
	// expected is the next point to stop at.
	expected format.Point
}

// Next implements format.Decoder.
func (d *decoder) Next() (int64, error) {
	if d.entered && d.err == nil {
		d.entered, d.inMember = false, true
		d.lookOut(d.before)
		return d.member, nil
	}
	if d.err == nil && d.inMember {
		if _, err := io.Copy(io.Discard, memberReader{d}); err != nil {
			return 0, err
		}
	}
	if d.err == nil {
		d.err = d.begin()
	}
	return d.member, d.err
}

// begin opens the next member.
func (d *decoder) begin() error {
	if d.seen {
		if err := d.passZeros(); err != nil {
			return err
		}
	}
	d.member = d.raw.OffsetBytes()
	head, err := d.raw.Buffer().Peek(len(magic))
	switch {
	case err != nil && d.raw.Failure() != nil:
		return d.raw.Failure()
	case len(head) == 0:
		return err
	case !bytes.HasPrefix(magic, head) && !bytes.HasPrefix(head, magic):
		if d.seen {
			return d.damage("the bytes after the last gzip member are neither a member nor zeros")
		}
		return d.damage("no gzip member begins here (1f 8b)" + d.foreign())
	}
	if err := d.header(); err != nil {
		return err
	}
	d.inflate.Reset()
	d.carry.n = 0
	d.crc, d.size, d.behind = 0, 0, nil
	d.seen, d.inMember = true, true
	d.before, d.data = 0, d.raw.OffsetBytes()
	d.lookOut(0)
	return nil
}

// foreign names the kind of file whose first bytes are in place of a member's; "" if it is not
// known. It does not read.
func (d *decoder) foreign() string {
	head, _ := d.raw.Buffer().Peek(d.raw.Buffer().Buffered())
	if is, known := format.IsForeign(head); known && d.member == 0 {
		return ": the file is " + is.What
	}
	return ""
}

// passZeros skips the zero bytes that may be all that follows a member.
func (d *decoder) passZeros() error {
	buffer := d.raw.Buffer()
	for zeros := 0; ; zeros++ {
		at := d.raw.OffsetBytes()
		b, err := buffer.ReadByte()
		switch {
		case err != nil && d.raw.Failure() != nil:
			return d.raw.Failure()
		case err != nil:
			return err
		case b == 0:
			continue
		case zeros > 0:
			d.member = at
			return d.damage("there are bytes after the zeros that follow the last gzip member")
		}
		return buffer.UnreadByte()
	}
}

// Read implements format.Decoder.
func (d *decoder) Read(p []byte) (int, error) {
	switch {
	case d.err != nil:
		return 0, d.err
	case !d.inMember:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	for len(d.inflate.Window()) == 0 && d.behind == nil {
		d.behind = d.decode()
	}
	n := copy(p, d.inflate.Window())
	d.inflate.Take(n)
	if len(d.inflate.Window()) > 0 {
		return n, nil
	}
	if d.err = d.behind; d.err == io.EOF {
		if d.err = d.trailer(); d.err == nil {
			d.inMember = false
			return n, io.EOF
		}
	}
	return n, d.err
}

// decode decodes some bytes into the window, which is empty. Its error follows them: io.EOF is the
// end of the deflate data.
func (d *decoder) decode() error {
	in := d.carry.input(&d.raw)
	used, status := d.inflate.Decode(in)
	decoded := d.inflate.Window()
	d.crc = crc32.Update(d.crc, crc32.IEEETable, decoded)
	d.size += uint32(len(decoded))
	if d.notes != nil {
		d.noted(in[:used], status)
	}
	d.carry.use(&d.raw, used)
	switch status {
	case inflate.Block:
		return d.stopped()
	case inflate.Input:
		if used == 0 && len(decoded) == 0 && !d.carry.more(&d.raw) {
			return d.lacking()
		}
	case inflate.End:
		return io.EOF
	case inflate.Bad:
		bits, _ := d.inflate.Position()
		return d.damage(fmt.Sprintf("the gzip member can't be decoded: flate: corrupt input before offset %d", (bits+7)/8))
	}
	return nil
}

// lacking returns the error for missing bytes.
func (d *decoder) lacking() error {
	if d.raw.Failure() != nil {
		return d.raw.Failure()
	}
	return d.damage("the file ends inside a gzip member")
}

func (d *decoder) damage(reason string) error {
	return &format.CorruptError{Record: -1, RawOffset: d.member, Reason: reason}
}

// MemoryBytes implements format.Decoder.
func (d *decoder) MemoryBytes() int64 { return stateBytes + d.raw.MemoryBytes() }

// Close implements format.Decoder.
func (d *decoder) Close() {
	if d.state == nil {
		return
	}
	d.raw.Release()
	states.Put(d.state)
	d.state, d.err, d.inMember, d.entered = nil, errClosed, false, false
}

var errClosed = errors.New("gzip decoder is closed")

// memberReader reads what is left of the current member.
type memberReader struct{ d *decoder }

func (m memberReader) Read(p []byte) (int, error) { return m.d.Read(p) }

// Flags of a member's header. Bit 0 marks text and is ignored.
const (
	flagHeaderCRC = 1 << 1
	flagExtra     = 1 << 2
	flagName      = 1 << 3
	flagComment   = 1 << 4
	flagsReserved = 0xe0
)

const (
	headerBytes  = 10 // the part common to all headers
	trailerBytes = 8
	deflate      = 8 // the only method
)

// header reads a member's header. Its content is not used.
func (d *decoder) header() error {
	fixed := d.scratch[:headerBytes]
	if !d.readFull(fixed) {
		return d.lacking()
	}
	if fixed[0] != magic[0] || fixed[1] != magic[1] || fixed[2] != deflate {
		return d.badHeader()
	}
	flags := fixed[3]
	crc := crc32.ChecksumIEEE(fixed)
	if flags&flagExtra != 0 {
		size := d.scratch[:2]
		if !d.readFull(size) {
			return d.lacking()
		}
		crc = crc32.Update(crc, crc32.IEEETable, size)
		for left := int(binary.LittleEndian.Uint16(size)); left > 0; {
			part := d.scratch[:min(left, len(d.scratch))]
			if !d.readFull(part) {
				return d.lacking()
			}
			crc = crc32.Update(crc, crc32.IEEETable, part)
			left -= len(part)
		}
	}
	for _, flag := range []byte{flagName, flagComment} {
		if flags&flag != 0 {
			var whole bool
			if crc, whole = d.text(crc); !whole {
				return d.lacking()
			}
		}
	}
	if flags&flagHeaderCRC != 0 {
		sum := d.scratch[:2]
		if !d.readFull(sum) {
			return d.lacking()
		}
		if binary.LittleEndian.Uint16(sum) != uint16(crc) {
			return d.badHeader()
		}
	}
	if flags&flagsReserved != 0 {
		return d.badHeader()
	}
	return nil
}

func (d *decoder) badHeader() error { return d.damage("the gzip member's header is invalid") }

// text skips bytes up to and including a zero, however many there are, and adds them to a checksum.
// It reports whether the zero was found.
func (d *decoder) text(crc uint32) (sum uint32, whole bool) {
	for {
		n := 0
		for n < len(d.scratch) && !whole {
			b, err := d.raw.Buffer().ReadByte()
			if err != nil {
				return crc, false
			}
			d.scratch[n] = b
			n++
			whole = b == 0
		}
		if crc = crc32.Update(crc, crc32.IEEETable, d.scratch[:n]); whole {
			return crc, true
		}
	}
}

// trailer compares the member with the checksum and the size after it.
func (d *decoder) trailer() error {
	p := d.scratch[:trailerBytes]
	if !d.readFull(p) {
		return d.lacking()
	}
	if binary.LittleEndian.Uint32(p) != d.crc || binary.LittleEndian.Uint32(p[4:]) != d.size {
		return d.damage("the gzip member's checksum or size does not match its bytes")
	}
	return nil
}

// readFull reports whether p was filled.
func (d *decoder) readFull(p []byte) bool {
	_, err := io.ReadFull(d.raw.Buffer(), p)
	return err == nil
}

// carryBytes is enough for what is left of one storage read, too little to be decoded, and for as
// much of the next one as is needed to decode it.
const carryBytes = 2 * inflate.MinInput

// carry joins storage reads: the buffer is used up before it is filled again, so that all reads
// except the last have its size.
//
//	p:  n bytes that have left the buffer | copied bytes, which are still in it
type carry struct {
	p         [carryBytes]byte
	n, copied int
}

// input returns the bytes to decode.
func (c *carry) input(raw *format.Raw) []byte {
	if c.n > 0 {
		return c.p[:c.n+c.copied]
	}
	in, _ := raw.Buffer().Peek(raw.Buffer().Buffered()) // that many are buffered
	return in
}

// use consumes the first bytes of input.
func (c *carry) use(raw *format.Raw, used int) {
	switch {
	case c.n == 0:
		discard(raw, used)
	case used >= c.n:
		discard(raw, used-c.n)
		c.n, c.copied = 0, 0
	default:
		copy(c.p[:], c.p[used:c.n+c.copied])
		c.n -= used
	}
}

// more adds bytes to input when none of it could be used. It reports whether there are any.
func (c *carry) more(raw *format.Raw) bool {
	buffer := raw.Buffer()
	if c.n == 0 {
		c.copied = copy(c.p[:], c.input(raw)) // less than inflate.MinInput
	}
	c.n += c.copied
	discard(raw, c.copied)
	c.copied = 0
	if _, err := buffer.Peek(1); err != nil {
		return false
	}
	next, _ := buffer.Peek(min(buffer.Buffered(), len(c.p)-c.n))
	c.copied = copy(c.p[c.n:], next)
	return c.copied > 0
}

// discard discards n bytes of the buffer, which must be there.
func discard(raw *format.Raw, n int) { _, _ = raw.Buffer().Discard(n) }
