// Package lz4 decodes whole-shard LZ4 compression, frame by frame, as specified by the LZ4 Frame
// Format 1.6.4 (github.com/lz4/lz4, doc/lz4_Frame_format.md).
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: 184D2204 flags block-size [u64le content size] [u32le dictionary] header checksum,
//	       blocks: u32le size (highest bit: stored), bytes [u32le xxh32 of them]
//	       u32le 0 [u32le xxh32 of the decoded bytes]
//	skippable frame: 184D2A5x, u32le size, bytes
//
// The decoding library gets one frame at a time; package frames finds the end of a frame by walking
// the sizes of its blocks. Frames that need a dictionary can't be decoded and count as damaged.
//
//	legacy frame: 184C2102, blocks: u32le size, bytes, each of 8 MiB except the last
//
// A legacy frame (lz4 -l, and lz4 before 1.4) has neither an end mark nor checksums: it ends where
// another frame begins, or with the file. So one that was truncated between blocks can't be
// distinguished from a shorter one.
package lz4

import (
	"errors"
	"io"

	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/frames"
)

// Codec is the format.Codec of lz4.
type Codec struct{}

var _ format.MemberCodec = Codec{}

// Name returns "lz4".
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
	Name:             "lz4",
	OneFrame:         "an lz4 frame",
	HeaderBytes:      maxHeaderBytes,
	Header:           parseHeader,
	BlockHeaderBytes: 4,
	Block:            parseBlock,
	Begins:           begins,
	NewLibrary:       func() (frames.Library, error) { return &library{}, nil },
}

// library is lz4's frames.Library. Blocks are pooled by lz4.
type library struct {
	lz4    *lz4.Reader // nil before the first frame, and after one of linked blocks
	linked bool        // the frame's blocks are linked
	memory int64       // the most that any frame has needed
	// old decodes the frame if it is of the legacy format (inOld).
	old   legacy
	inOld bool
}

// Open implements frames.Library.
func (l *library) Open(raw io.Reader, h *frames.Header) error {
	l.memory, l.linked, l.inOld = max(l.memory, h.MemoryBytes), h.Linked, h.OpenEnded
	if l.inOld {
		return l.old.open(raw)
	}
	if l.lz4 == nil {
		l.lz4 = lz4.NewReader(raw)
	} else {
		l.lz4.Reset(raw)
	}
	return nil
}

// Read implements frames.Library.
func (l *library) Read(p []byte) (int, error) {
	if l.inOld {
		return l.old.Read(p)
	}
	n, err := l.lz4.Read(p)
	if err == io.EOF {
		l.giveBlocksBack()
	}
	return n, err
}

// giveBlocksBack returns the blocks to lz4's pool. A reader that has decoded linked blocks keeps
// the last of them even for the next frame, which must not refer to them.
func (l *library) giveBlocksBack() {
	if l.lz4 == nil {
		return
	}
	l.lz4.Reset(nil)
	if l.linked {
		l.lz4 = nil
	}
}

// Damage implements frames.Library.
func (l *library) Damage(err error) string {
	switch {
	case errors.Is(err, lz4.ErrInvalidHeaderChecksum):
		return "the lz4 frame's header does not match its checksum"
	case errors.Is(err, lz4.ErrInvalidBlockChecksum):
		return "a block of the lz4 frame does not match its checksum"
	case errors.Is(err, lz4.ErrInvalidFrameChecksum):
		return "the lz4 frame's checksum does not match its bytes"
	case errors.Is(err, lz4.ErrInvalidContentSize):
		return "the lz4 frame has another size than its header"
	}
	return ""
}

// MemoryBytes implements frames.Library.
func (l *library) MemoryBytes() int64 { return l.memory }

// Release implements frames.Library.
func (l *library) Release() bool {
	l.giveBlocksBack()
	l.memory, l.old, l.inOld = 0, legacy{}, false
	return true
}
