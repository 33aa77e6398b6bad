// Package zstd decodes whole-shard Zstandard compression (RFC 8878), frame by
// frame.
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: fd2fb528 descriptor [window] [dictionary] [content size],
//	       blocks: 3-byte header (last, type, size), bytes
//	       [u32le of xxh64 of the decoded bytes]
//	skippable frame: 184D2A5x, u32le size, bytes
//
// The decoder is shown one frame at a time: its end is found by walking the
// block headers as bytes pass through. Frames that need a window above 128 MiB,
// or a dictionary, count as damaged, since they can't be decoded.
package zstd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// maxWindowBytes bounds what a frame may have a decoder allocate: the window of
// `zstd --ultra -22`, the largest that needs no other option to be decoded.
const maxWindowBytes = 128 << 20

// Codec is zstd's unpack.Codec.
type Codec struct{}

var _ unpack.Codec = Codec{}

// Name is "zstd".
func (Codec) Name() string { return "zstd" }

// Extensions is ".zst".
func (Codec) Extensions() map[string]string { return map[string]string{".zst": ""} }

// NewDecoder makes a decoder of raw from the first byte of a frame on.
func (Codec) NewDecoder(raw io.Reader, rawOffset int64) (unpack.Decoder, error) {
	s, ok := states.Get().(*state)
	if !ok {
		var err error
		if s, err = newState(); err != nil {
			return nil, err
		}
	}
	s.raw.Reset(raw, rawOffset)
	return &decoder{state: s}, nil
}

// states are decoders not in use: the buffers and tables of one cost more to
// make than many a small shard to decode. What is idle is left to the garbage
// collector, and what is in use its owner bounds.
var states sync.Pool

// keepWindowBytes is the window above which a decoder is not kept for reuse:
// that of the highest ordinary level, 19.
const keepWindowBytes = 8 << 20

// state is what a decoder reuses.
type state struct {
	raw   unpack.Raw
	zstd  *zstd.Decoder
	frame frame
	// window is the largest that a frame has had: what zstd holds goes by it.
	window int64
}

func newState() (*state, error) {
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return &state{zstd: z}, nil
}

type decoder struct {
	*state
	member  int64 // first byte of the current frame
	inFrame bool
	err     error
}

// Next implements unpack.Decoder.
func (d *decoder) Next() (int64, error) {
	if d.err == nil && d.inFrame {
		if _, err := io.Copy(io.Discard, frameReader{d}); err != nil {
			return 0, err
		}
	}
	if d.err == nil {
		d.err = d.begin()
	}
	return d.member, d.err
}

// begin opens the frame that follows, passing over skippable ones.
func (d *decoder) begin() error {
	for {
		d.member = d.raw.OffsetBytes()
		head, err := d.raw.Buffer().Peek(zstd.HeaderMaxSize)
		switch {
		case d.raw.Failure() != nil:
			return d.raw.Failure()
		case len(head) == 0:
			return err
		}
		var h zstd.Header
		if err := h.Decode(head); err != nil {
			return d.explainHeader(err)
		}
		if !h.Skippable {
			return d.open(&h)
		}
		if err := d.skip(int64(h.HeaderSize) + int64(h.SkippableSize)); err != nil {
			return err
		}
	}
}

func (d *decoder) skip(n int64) error {
	err := d.raw.Skip(n)
	if err != nil && d.raw.Failure() == nil {
		return d.damage("the file ends inside a skippable zstd frame")
	}
	return err
}

// open begins to decode the frame whose header is h.
func (d *decoder) open(h *zstd.Header) error {
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if window > maxWindowBytes {
		return d.damage(fmt.Sprintf("the zstd frame needs a window of %d bytes, above the %d that are decoded: compress without --long", window, maxWindowBytes))
	}
	if h.DictionaryID != 0 {
		return d.damage(fmt.Sprintf("the zstd frame needs dictionary %d: compress without one", h.DictionaryID))
	}
	d.window = max(d.window, int64(window))
	d.frame = frame{raw: &d.raw, left: int64(h.HeaderSize), checksum: h.HasCheckSum}
	if err := d.zstd.Reset(&d.frame); err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	d.inFrame = true
	return nil
}

// Read implements unpack.Decoder.
func (d *decoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if !d.inFrame {
		return 0, io.EOF
	}
	n, err := d.zstd.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && d.frame.done:
		d.inFrame = false
		return n, io.EOF
	}
	d.err = d.explain(err)
	return n, d.err
}

// explain tells failures of reading from damage.
func (d *decoder) explain(err error) error {
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case d.frame.cut || err == io.EOF:
		return d.damage("the file ends inside a zstd frame")
	case errors.Is(err, zstd.ErrCRCMismatch):
		return d.damage("the zstd frame's checksum does not match its bytes")
	}
	return d.damage(fmt.Sprintf("the zstd frame can't be decoded: %v", err))
}

func (d *decoder) explainHeader(err error) error {
	switch {
	case errors.Is(err, zstd.ErrMagicMismatch):
		return d.damage("neither a zstd frame nor a skippable one")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return d.damage("the file ends inside the header of a zstd frame")
	}
	return d.damage(fmt.Sprintf("the zstd frame's header is invalid: %v", err))
}

func (d *decoder) damage(reason string) error {
	return &unpack.CorruptError{Record: -1, RawOffset: d.member, Reason: reason}
}

// blockBytes is the largest block; the decoder holds a window, two blocks
// beyond it, and about four more for literals, input, sequences and output.
const blockBytes = 128 << 10

// MemoryBytes implements unpack.Decoder.
func (d *decoder) MemoryBytes() int64 { return d.window + 6*blockBytes + d.raw.MemoryBytes() }

// Close implements unpack.Decoder.
func (d *decoder) Close() {
	s := d.state
	if s == nil {
		return
	}
	d.state, d.err, d.inFrame = nil, errClosed, false
	if s.window > keepWindowBytes {
		s.zstd.Close()
		return
	}
	s.raw.Release()
	s.frame = frame{}
	if err := s.zstd.Reset(nil); err == nil {
		states.Put(s)
	}
}

var errClosed = errors.New("zstd decoder is closed")

// frameReader reads what is left of the current frame.
type frameReader struct{ d *decoder }

func (f frameReader) Read(p []byte) (int, error) { return f.d.Read(p) }

// frame gives the raw bytes of one frame, and io.EOF behind its last.
type frame struct {
	raw      *unpack.Raw
	left     int64 // bytes up to the next block header, checksum or end
	checksum bool  // four bytes follow the last block
	last     bool  // the last block's header has been seen
	done     bool
	cut      bool // the file ends inside the frame
}

// blockTypes, RFC 8878 section 3.1.1.2.2.
const (
	rleBlock      = 1
	reservedBlock = 3
)

func (f *frame) Read(p []byte) (int, error) {
	for f.left == 0 {
		if err := f.advance(); err != nil {
			return 0, err
		}
	}
	n, err := f.raw.ReadPart(p, &f.left)
	f.cut = f.cut || err == io.ErrUnexpectedEOF
	return n, err
}

// advance finds how many bytes come before the next place to look at.
func (f *frame) advance() error {
	if f.last {
		if f.checksum {
			f.checksum, f.left = false, 4
			return nil
		}
		f.done = true
		return io.EOF
	}
	head, err := f.raw.Buffer().Peek(3)
	if len(head) < 3 {
		f.cut = err == io.EOF
		return io.ErrUnexpectedEOF
	}
	block := uint32(binary.LittleEndian.Uint16(head)) | uint32(head[2])<<16
	size := int64(block >> 3)
	switch block >> 1 & 3 {
	case reservedBlock:
		return errors.New("block of a reserved type")
	case rleBlock:
		size = 1
	}
	f.last, f.left = block&1 != 0, 3+size
	return nil
}
