// Package gzip decodes whole-shard gzip compression (RFC 1952), member by member.
//
//	shard:  member  member  …  member  zero bytes
//	member: 1f 8b 08 flags mtime xfl os, [extra] [name] [comment] [crc16],
//	        deflate data, u32le crc32 of the decoded bytes, u32le their number
//
// Any number of members may follow each other. Zero bytes after the last one are
// skipped. Anything else there is damage at that place, also a member after zero bytes.
// The start of a member can only be found by decoding the member before it.
package gzip

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Codec is the unpack.Codec of gzip.
type Codec struct{}

var _ unpack.Codec = Codec{}

// Name is "gzip".
func (Codec) Name() string { return "gzip" }

// Extensions are ".gz" and ".tgz".
func (Codec) Extensions() map[string]string {
	return map[string]string{".gz": "", ".tgz": ".tar"}
}

// NewDecoder makes a decoder of raw, which begins at a member's first byte.
func (Codec) NewDecoder(raw io.Reader, rawOffset int64) (unpack.Decoder, error) {
	s := states.Get().(*state)
	s.raw.Reset(raw, rawOffset)
	return &decoder{state: s}, nil
}

// states are decoders not in use: each is about 300 KiB to allocate and clear,
// more than many a shard of a dataset of small ones. What is idle is left to
// the garbage collector, and what is in use its owner bounds.
var states = sync.Pool{New: func() any { return new(state) }}

// state is what a decoder reuses.
type state struct {
	raw  unpack.Raw
	gzip gzip.Reader
}

// stateBytes is the memory of a deflate decoder: its 32 KiB window, Huffman
// tables and buffers.
const stateBytes = 64 << 10

var magic = []byte{0x1f, 0x8b}

type decoder struct {
	*state
	member   int64 // first byte of the current member
	inMember bool
	seen     bool // a member has been seen
	err      error
}

// Next implements unpack.Decoder.
func (d *decoder) Next() (int64, error) {
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

// begin opens the member that follows.
func (d *decoder) begin() error {
	if d.seen {
		if err := d.passZeros(); err != nil {
			return err
		}
	}
	d.member = d.raw.OffsetBytes()
	head, err := d.raw.Buffer().Peek(len(magic))
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case len(head) == 0:
		return err
	case !bytes.HasPrefix(magic, head) && !bytes.HasPrefix(head, magic):
		if d.seen {
			return d.damage("bytes after the last gzip member that are neither a member nor zeros")
		}
		return d.damage("not a gzip member: it does not begin with 1f 8b")
	}
	if err := d.gzip.Reset(d.raw.Buffer()); err != nil {
		return d.explain(err)
	}
	d.gzip.Multistream(false)
	d.seen, d.inMember = true, true
	return nil
}

// passZeros passes over the zero bytes that may be all that follows a member.
func (d *decoder) passZeros() error {
	buffer := d.raw.Buffer()
	for zeros := 0; ; zeros++ {
		at := d.raw.OffsetBytes()
		b, err := buffer.ReadByte()
		switch {
		case d.raw.Failure() != nil:
			return d.raw.Failure()
		case err != nil:
			return err
		case b == 0:
			continue
		case zeros > 0:
			d.member = at
			return d.damage("bytes after the zeros that follow the last gzip member")
		}
		return buffer.UnreadByte()
	}
}

// Read implements unpack.Decoder.
func (d *decoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if !d.inMember {
		return 0, io.EOF
	}
	n, err := d.gzip.Read(p)
	if err == io.EOF {
		d.inMember = false
		return n, io.EOF
	}
	if err != nil {
		d.err = d.explain(err)
	}
	return n, d.err
}

// explain tells failures of reading from damage.
func (d *decoder) explain(err error) error {
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return d.damage("the file ends inside a gzip member")
	case errors.Is(err, gzip.ErrChecksum):
		return d.damage("the gzip member's checksum or size does not match its bytes")
	case errors.Is(err, gzip.ErrHeader):
		return d.damage("the gzip member's header is invalid")
	}
	return d.damage(fmt.Sprintf("the gzip member can't be decoded: %v", err))
}

func (d *decoder) damage(reason string) error {
	return &unpack.CorruptError{Record: -1, RawOffset: d.member, Reason: reason}
}

// MemoryBytes implements unpack.Decoder.
func (d *decoder) MemoryBytes() int64 { return stateBytes + d.raw.MemoryBytes() }

// Close implements unpack.Decoder.
func (d *decoder) Close() {
	if d.state == nil {
		return
	}
	d.raw.Release()
	states.Put(d.state)
	d.state, d.err, d.inMember = nil, errClosed, false
}

var errClosed = errors.New("gzip decoder is closed")

// memberReader reads what is left of the current member.
type memberReader struct{ d *decoder }

func (m memberReader) Read(p []byte) (int, error) { return m.d.Read(p) }
