// Package zstd decodes whole-shard Zstandard compression (RFC 8878), frame by frame.
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: fd2fb528 descriptor [window] [dictionary] [content size],
//	       blocks: 3-byte header (last, type, size), bytes
//	       [u32le of xxh64 of the decoded bytes]
//	skippable frame: 184D2A5x, u32le size, bytes
//
// The decoding library gets one frame at a time; format.FrameCodec finds the end of a frame by
// walking its block headers. The seek table of the seekable format (facebook/zstd,
// contrib/seekable_format) is skipped like any skippable frame: its content is found at no cost
// anyway, and it may be wrong. Frames that need a window above 128 MiB, or a dictionary, can't be
// decoded and count as damaged.
package zstd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Codec is the format.Codec of zstd.
type Codec struct{}

var _ format.MemberCodec = Codec{}

// Name returns "zstd".
func (Codec) Name() string { return codec.Name }

// NewDecoder returns a decoder of raw, which begins at a frame's first byte.
func (Codec) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	return codec.NewDecoder(raw, rawOffset)
}

// NewWalk returns a walk of raw, which begins at a frame's first byte.
func (Codec) NewWalk(raw io.Reader, rawOffset int64) format.Walk {
	return codec.NewWalk(raw, rawOffset)
}

var codec = format.FrameCodec{
	Name:             "zstd",
	OneFrame:         "a zstd frame",
	HeaderBytes:      zstd.HeaderMaxSize,
	Header:           parseHeader,
	BlockHeaderBytes: 3,
	Block:            parseBlock,
	NewLibrary:       newLibrary,
}

// keepWindowBytes is the window above which a decoder is not kept for reuse: that of the highest
// ordinary level, 19.
const keepWindowBytes = 8 << 20

// library is zstd's format.FrameLibrary.
type library struct {
	zstd *zstd.Decoder
	// memory is what zstd holds. It is determined by the largest window of all frames so far.
	memory int64
}

func newLibrary() (format.FrameLibrary, error) {
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return &library{zstd: z, memory: memoryBytes(0)}, nil
}

// Open implements format.FrameLibrary.
func (l *library) Open(raw io.Reader, h *format.FrameHeader) error {
	l.memory = max(l.memory, h.MemoryBytes)
	if err := l.zstd.Reset(raw); err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	return nil
}

// Read implements format.FrameLibrary.
func (l *library) Read(p []byte) (int, error) { return l.zstd.Read(p) }

// Damage implements format.FrameLibrary.
func (l *library) Damage(err error) string {
	if errors.Is(err, zstd.ErrCRCMismatch) {
		return "the zstd frame's checksum does not match its bytes"
	}
	return ""
}

// MemoryBytes implements format.FrameLibrary.
func (l *library) MemoryBytes() int64 { return l.memory }

// Release implements format.FrameLibrary.
func (l *library) Release() bool {
	if l.memory > memoryBytes(keepWindowBytes) {
		l.zstd.Close()
		return false
	}
	return l.zstd.Reset(nil) == nil
}

// maxWindowBytes bounds how much a frame may make a decoder allocate: the window of `zstd --ultra
// -22`, the largest that can be decoded without other options.
const maxWindowBytes = 128 << 20

// blockBytes is the largest block, decoded.
const blockBytes = 128 << 10

// memoryBytes returns approximately what decoding takes: a window, two blocks beyond it, and about
// four more for literals, input, sequences and output.
func memoryBytes(windowBytes int64) int64 { return windowBytes + 6*blockBytes }

// parseHeader parses the header of a frame, skippable or not, and refuses a frame that can't be
// decoded.
func parseHeader(h *format.FrameHeader, head []byte) error {
	var z zstd.Header
	if err := z.Decode(head); err != nil {
		return explainHeader(err)
	}
	if z.Skippable {
		h.Skippable, h.SizeBytes = true, int64(z.HeaderSize)+int64(z.SkippableSize)
		return nil
	}
	window := z.WindowSize
	if z.SingleSegment {
		window = z.FrameContentSize
	}
	if window > maxWindowBytes {
		return fmt.Errorf("the zstd frame needs a window of %d bytes, more than the %d that are decoded: compress the file again without --long", window, maxWindowBytes)
	}
	if z.DictionaryID != 0 {
		return fmt.Errorf("the zstd frame needs dictionary %d: compress the file again without a dictionary", z.DictionaryID)
	}
	h.SizeBytes, h.BlockBytes, h.MemoryBytes = int64(z.HeaderSize), blockBytes, memoryBytes(int64(window))
	h.Linked, h.ContentSum = true, z.HasCheckSum
	return nil
}

func explainHeader(err error) error {
	switch {
	case errors.Is(err, zstd.ErrMagicMismatch):
		return errors.New("no zstd frame begins here")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the file ends inside the header of a zstd frame")
	}
	return fmt.Errorf("the zstd frame's header is invalid: %v", err)
}

// blockTypes, RFC 8878 section 3.1.1.2.2.
const (
	rleBlock      = 1
	reservedBlock = 3
)

// parseBlock parses a block's header.
func parseBlock(head []byte) (format.FrameBlock, error) {
	block := uint32(binary.LittleEndian.Uint16(head)) | uint32(head[2])<<16
	size := int64(block >> 3)
	switch block >> 1 & 3 {
	case reservedBlock:
		return format.FrameBlock{}, errors.New("a block has a reserved type")
	case rleBlock:
		size = 1
	}
	return format.FrameBlock{SizeBytes: size, Last: block&1 != 0}, nil
}
