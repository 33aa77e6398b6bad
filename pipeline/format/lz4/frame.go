package lz4

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/format/frames"
)

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
func parseHeader(h *frames.Header, head []byte) error {
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
func parseFrameHeader(h *frames.Header, head []byte) error {
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
func memoryBytes(h *frames.Header) int64 {
	if h.Linked {
		return 2*h.BlockBytes + 3*max(h.BlockBytes, 128<<10)
	}
	return 2 * h.BlockBytes
}

// storedBlock is the bit of a block's size that marks it as not compressed.
const storedBlock = 1 << 31

// parseBlock parses a block's size; that of the end mark is 0.
func parseBlock(head []byte) (frames.Block, error) {
	size := binary.LittleEndian.Uint32(head)
	return frames.Block{SizeBytes: int64(size &^ storedBlock), Last: size == 0}, nil
}
