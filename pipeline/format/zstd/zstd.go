// Package zstd decodes whole-shard Zstandard compression (RFC 8878), frame by frame.
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: fd2fb528 descriptor [window] [dictionary] [content size],
//	       blocks: 3-byte header (last, type, size), bytes
//	       [u32le of xxh64 of the decoded bytes]
//	skippable frame: 184D2A5x, u32le size, bytes
//
// The decoding library gets one frame at a time; package frames finds the end of a frame by walking
// its block headers. The seek table of the seekable format (facebook/zstd, contrib/seekable_format)
// is skipped like any skippable frame: its content is found at no cost anyway, and it may be wrong.
// Frames that need a window above 128 MiB, or a dictionary, can't be decoded and count as damaged.
package zstd

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/frames"
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

var codec = frames.Codec{
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

// library is zstd's frames.Library.
type library struct {
	zstd *zstd.Decoder
	// memory is what zstd holds. It is determined by the largest window of all frames so far.
	memory int64
}

func newLibrary() (frames.Library, error) {
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return &library{zstd: z, memory: memoryBytes(0)}, nil
}

// Open implements frames.Library.
func (l *library) Open(raw io.Reader, h *frames.Header) error {
	l.memory = max(l.memory, h.MemoryBytes)
	if err := l.zstd.Reset(raw); err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	return nil
}

// Read implements frames.Library.
func (l *library) Read(p []byte) (int, error) { return l.zstd.Read(p) }

// Damage implements frames.Library.
func (l *library) Damage(err error) string {
	if errors.Is(err, zstd.ErrCRCMismatch) {
		return "the zstd frame's checksum does not match its bytes"
	}
	return ""
}

// MemoryBytes implements frames.Library.
func (l *library) MemoryBytes() int64 { return l.memory }

// Release implements frames.Library.
func (l *library) Release() bool {
	if l.memory > memoryBytes(keepWindowBytes) {
		l.zstd.Close()
		return false
	}
	return l.zstd.Reset(nil) == nil
}
