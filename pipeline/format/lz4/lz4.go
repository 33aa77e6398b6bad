// Package lz4 decodes whole-shard LZ4 compression, frame by frame, as specified by the LZ4 Frame
// Format 1.6.4 (github.com/lz4/lz4, doc/lz4_Frame_format.md).
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: 184D2204 flags block-size [u64le content size] [u32le dictionary] header checksum,
//	       blocks: u32le size (highest bit: stored), bytes [u32le xxh32 of them]
//	       u32le 0 [u32le xxh32 of the decoded bytes]
//	skippable frame: 184D2A5x, u32le size, bytes
//
// The decoding library gets one frame at a time; format.FrameCodec finds the end of a frame by
// walking the sizes of its blocks. Frames that need a dictionary can't be decoded and count as
// damaged.
//
//	legacy frame: 184C2102, blocks: u32le size, bytes, each of 8 MiB except the last
//
// A legacy frame (lz4 -l, and lz4 before 1.4) has neither an end mark nor checksums: it ends where
// another frame begins, or with the file. So one that was truncated between blocks can't be
// distinguished from a shorter one.
package lz4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/format"
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

var codec = format.FrameCodec{
	Name:             "lz4",
	OneFrame:         "an lz4 frame",
	HeaderBytes:      maxHeaderBytes,
	Header:           parseHeader,
	BlockHeaderBytes: 4,
	Block:            parseBlock,
	Begins:           begins,
	NewLibrary:       func() (format.FrameLibrary, error) { return &library{}, nil },
}

// library is lz4's format.FrameLibrary. Blocks are pooled by lz4.
type library struct {
	lz4    *lz4.Reader // nil before the first frame, and after one of linked blocks
	linked bool        // the frame's blocks are linked
	memory int64       // the most that any frame has needed
	// old decodes the frame if it is of the legacy format (inOld).
	old   legacy
	inOld bool
}

// Open implements format.FrameLibrary.
func (l *library) Open(raw io.Reader, h *format.FrameHeader) error {
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

// Read implements format.FrameLibrary.
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

// Damage implements format.FrameLibrary.
func (l *library) Damage(err error) string {
	switch {
	case errors.Is(err, lz4.ErrInvalidHeaderChecksum):
		return "the lz4 frame's header does not match its checksum"
	case errors.Is(err, lz4.ErrInvalidBlockChecksum):
		return "a block of the lz4 frame does not match its checksum"
	case errors.Is(err, lz4.ErrInvalidFrameChecksum):
		return "the lz4 frame's checksum does not match its bytes"
	case errors.Is(err, lz4.ErrInvalidContentSize):
		return "the lz4 frame's decoded size is not the one in its header"
	}
	return ""
}

// MemoryBytes implements format.FrameLibrary.
func (l *library) MemoryBytes() int64 { return l.memory }

// Release implements format.FrameLibrary.
func (l *library) Release() bool {
	l.giveBlocksBack()
	l.memory, l.old, l.inOld = 0, legacy{}, false
	return true
}

const (
	frameMagic     = 0x184d2204
	legacyMagic    = 0x184c2102
	skippableMagic = 0x184d2a50 // to …5f
)

// maxHeaderBytes is the size of a frame's header with all optional fields.
const maxHeaderBytes = 19

// The bits of a header's flags.
const (
	flagDictionary = 1 << iota
	_
	flagContentSum
	flagContentSize
	flagBlockSum
	flagIndependent
)

var errCutHeader = errors.New("the file ends inside the header of an lz4 frame")

// parseHeader parses the header of a frame, skippable or not.
func parseHeader(h *format.FrameHeader, head []byte) error {
	if len(head) < 4 {
		return errCutHeader
	}
	switch magic := binary.LittleEndian.Uint32(head); {
	case magic == frameMagic:
		return parseFrameHeader(h, head)
	case magic == legacyMagic:
		legacyHeader(h)
		return nil
	case magic&^0xf != skippableMagic:
		return errors.New("no lz4 frame begins here")
	case len(head) < 8:
		return errors.New("the file ends inside the header of a skippable lz4 frame")
	}
	h.Skippable, h.SizeBytes = true, 8+int64(binary.LittleEndian.Uint32(head[4:]))
	return nil
}

// parseFrameHeader parses as much of a header as is needed to find the frame's end; its checksum is
// verified when the frame is decoded.
func parseFrameHeader(h *format.FrameHeader, head []byte) error {
	if len(head) < 7 {
		return errCutHeader
	}
	flags, block := head[4], head[5]>>4&7
	if block < 4 {
		return fmt.Errorf("the lz4 frame's header is invalid: its block size has the code %d", block)
	}
	h.Linked, h.BlockSum, h.ContentSum = flags&flagIndependent == 0, flags&flagBlockSum != 0, flags&flagContentSum != 0
	h.BlockBytes = 1 << (8 + 2*block) // 64 KiB, 256 KiB, 1 MiB, 4 MiB
	h.SizeBytes = 7
	if flags&flagContentSize != 0 {
		h.SizeBytes += 8
	}
	if flags&flagDictionary != 0 {
		h.SizeBytes += 4
	}
	if int64(len(head)) < h.SizeBytes {
		return errCutHeader
	}
	if flags&flagDictionary != 0 {
		return fmt.Errorf("the lz4 frame needs dictionary %d: compress the file again without a dictionary", binary.LittleEndian.Uint32(head[h.SizeBytes-5:]))
	}
	h.MemoryBytes = memoryBytes(h)
	return nil
}

// memoryBytes returns approximately what decoding takes: a block as in the file and a decoded one;
// for linked blocks also the previous ones, up to 128 KiB or a block, and the smaller buffers that
// these outgrow.
func memoryBytes(h *format.FrameHeader) int64 {
	if h.Linked {
		return 2*h.BlockBytes + 3*max(h.BlockBytes, 128<<10)
	}
	return 2 * h.BlockBytes
}

// storedBlock is the bit of a block's size that marks it as not compressed.
const storedBlock = 1 << 31

// parseBlock parses a block's size; that of the end mark is 0.
func parseBlock(head []byte) (format.FrameBlock, error) {
	size := binary.LittleEndian.Uint32(head)
	return format.FrameBlock{SizeBytes: int64(size &^ storedBlock), Last: size == 0}, nil
}

const (
	// legacyBlockBytes is the size of a decoded block of a legacy frame; the last one may be
	// smaller.
	legacyBlockBytes = 8 << 20
	// legacyMostBytes is the largest size of a block in the file.
	legacyMostBytes = legacyBlockBytes + legacyBlockBytes/255 + 16
)

// begins reports whether a frame begins with four bytes: none of the magic numbers is a valid block
// size.
func begins(head []byte) bool {
	switch magic := binary.LittleEndian.Uint32(head); magic {
	case frameMagic, legacyMagic:
		return true
	default:
		return magic&^0xf == skippableMagic
	}
}

func legacyHeader(h *format.FrameHeader) {
	h.SizeBytes, h.BlockBytes, h.OpenEnded = 4, legacyBlockBytes, true
	h.MemoryBytes = legacyBlockBytes + legacyMostBytes
}

// legacy decodes a legacy frame. The library decodes these frames, too, but allows a block to refer
// to the previous one.
type legacy struct {
	raw            io.Reader
	block, decoded []byte // as in the file, and decoded bytes not read yet
	buffer         []byte
}

// open begins a frame.
func (l *legacy) open(raw io.Reader) error {
	l.raw, l.decoded = raw, nil
	_, err := io.CopyN(io.Discard, raw, 4) // its magic number
	return err
}

func (l *legacy) Read(p []byte) (int, error) {
	for len(l.decoded) == 0 {
		if err := l.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.decoded)
	l.decoded = l.decoded[n:]
	return n, nil
}

// next decodes a block. At the frame's end it returns io.EOF.
func (l *legacy) next() error {
	var head [4]byte
	if _, err := io.ReadFull(l.raw, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > legacyMostBytes {
		return fmt.Errorf("a block has %d bytes, which is too large", size)
	}
	if l.buffer == nil {
		l.buffer, l.block = make([]byte, legacyBlockBytes), make([]byte, legacyMostBytes)
	}
	if _, err := io.ReadFull(l.raw, l.block[:size]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	n, err := lz4.UncompressBlock(l.block[:size], l.buffer)
	if err != nil {
		return err
	}
	l.decoded = l.buffer[:n]
	return nil
}
