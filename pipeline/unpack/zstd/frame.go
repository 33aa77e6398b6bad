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

// walk goes from frame to frame through a file. It is an unpack.Walk, and what a
// decoder reads through.
type walk struct {
	raw    unpack.Raw
	member int64 // first byte of the current frame
	frame  frame
}

// begin goes on to the frame that follows, passing over skippable ones. What is
// left of the frame before has been read.
func (w *walk) begin() error {
	for {
		w.member = w.raw.OffsetBytes()
		head, err := w.raw.Buffer().Peek(zstd.HeaderMaxSize)
		switch {
		case w.raw.Failure() != nil:
			return w.raw.Failure()
		case len(head) == 0:
			return err
		}
		var h zstd.Header
		if err := h.Decode(head); err != nil {
			return w.explainHeader(err)
		}
		if !h.Skippable {
			return w.open(&h)
		}
		if err := w.skip(int64(h.HeaderSize) + int64(h.SkippableSize)); err != nil {
			return err
		}
	}
}

func (w *walk) skip(n int64) error {
	err := w.raw.Skip(n)
	if err != nil && w.raw.Failure() == nil {
		return w.damage("the file ends inside a skippable zstd frame")
	}
	return err
}

// open begins the frame whose header is h, where it can be decoded.
func (w *walk) open(h *zstd.Header) error {
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if window > maxWindowBytes {
		return w.damage(fmt.Sprintf("the zstd frame needs a window of %d bytes, above the %d that are decoded: compress without --long", window, maxWindowBytes))
	}
	if h.DictionaryID != 0 {
		return w.damage(fmt.Sprintf("the zstd frame needs dictionary %d: compress without one", h.DictionaryID))
	}
	w.frame = frame{raw: &w.raw, left: int64(h.HeaderSize), checksum: h.HasCheckSum, window: int64(window)}
	return nil
}

func (w *walk) explainHeader(err error) error {
	switch {
	case errors.Is(err, zstd.ErrMagicMismatch):
		return w.damage("neither a zstd frame nor a skippable one")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return w.damage("the file ends inside the header of a zstd frame")
	}
	return w.damage(fmt.Sprintf("the zstd frame's header is invalid: %v", err))
}

func (w *walk) damage(reason string) error {
	return &unpack.CorruptError{Record: -1, RawOffset: w.member, Reason: reason}
}

// walks are not in use; kept for their buffers.
var walks = sync.Pool{New: func() any { return new(walk) }}

// Next implements unpack.Walk.
func (w *walk) Next() (int64, error) {
	err := w.begin()
	return w.member, err
}

// Read implements unpack.Walk.
func (w *walk) Read(p []byte) (int, error) { return w.frame.Read(p) }

// Raw implements unpack.Walk.
func (w *walk) Raw() *unpack.Raw { return &w.raw }

// DecodedBytes implements unpack.Walk.
func (w *walk) DecodedBytes() int64 { return w.frame.blocks * blockBytes }

// DecoderBytes implements unpack.Walk.
func (w *walk) DecoderBytes() int64 { return decoderBytes(w.frame.window) }

// Close implements unpack.Walk.
func (w *walk) Close() {
	w.raw.Release()
	w.frame = frame{}
	walks.Put(w)
}

// blockBytes is the largest block, decoded.
const blockBytes = 128 << 10

// decoderBytes is about what a decoder holds: a window, two blocks beyond it, and
// about four more for literals, input, sequences and output; and the raw bytes.
func decoderBytes(windowBytes int64) int64 {
	return windowBytes + 6*blockBytes + (*unpack.Raw)(nil).MemoryBytes()
}

// frame gives the raw bytes of one frame, and io.EOF behind its last.
type frame struct {
	raw      *unpack.Raw
	left     int64 // bytes up to the next block header, checksum or end
	checksum bool  // four bytes follow the last block
	window   int64 // bytes that decoding it needs
	blocks   int64 // seen
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
	f.blocks++
	return nil
}
