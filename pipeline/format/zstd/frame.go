package zstd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/lsiofs/lsiofs/pipeline/format/frames"
)

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
func parseHeader(h *frames.Header, head []byte) error {
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
func parseBlock(head []byte) (frames.Block, error) {
	block := uint32(binary.LittleEndian.Uint16(head)) | uint32(head[2])<<16
	size := int64(block >> 3)
	switch block >> 1 & 3 {
	case reservedBlock:
		return frames.Block{}, errors.New("a block has a reserved type")
	case rleBlock:
		size = 1
	}
	return frames.Block{SizeBytes: size, Last: block&1 != 0}, nil
}
