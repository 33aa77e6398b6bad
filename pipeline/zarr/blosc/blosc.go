// Package blosc decodes buffers of blosc 1, the most common compressor of Zarr arrays. Any range of
// a buffer's blocks can be decoded alone: a crop of a large chunk rarely needs all of them.
//
//	u8 version: 2 │ u8 version of the codec: 1 │ u8 flags │ u8 size of an element
//	u32 decoded bytes │ u32 bytes of a block │ u32 bytes of the buffer, with this header
//	i32 start of block 0, from the buffer's first byte │ start of block 1 │ …
//	blocks, in any order: i32 size │ data │ i32 size │ data │ …
//
// All numbers are little-endian. The flags:
//
//	0x01  bytes are shuffled: each block begins with the first bytes of all elements
//	0x02  stored: the decoded bytes follow the header, other fields are ignored
//	0x04  bits are shuffled
//	0x08  must be 0
//	0x10  blocks are not split
//	0xE0  codec: blosclz, lz4, snappy, zlib, zstd
//
// A block is split into as many streams of equal size as an element has bytes, if 0x10 is not set,
// elements have at most 16 bytes, blocks have at least 128 elements, and the block is not a shorter
// last one. Otherwise it is one stream. A stream as long as its decoded size is uncompressed.
//
// Usage:
//
//	h, err := blosc.Parse(buffer, int64(len(buffer)), decodedBytes)
//	…
//	d := blosc.NewDecoder()
//	defer d.Close()
//	first, last := h.BlocksOf(begin, end)                // of the decoded bytes wanted
//	low, high := h.Range(first, last)
//	err = d.Decode(dst[:high-low], buffer, h, first, last)
//
// No memory is allocated on a buffer's word: its decoded size must be the one the caller expects,
// and a block is not larger than that. Every error means that the buffer is damaged, or was not
// written by blosc 1; its text names the block and the problem.
//
// The format is specified in README_CHUNK_FORMAT.rst of Blosc/c-blosc, and beyond that by blosc.c
// and blosclz.c as of https://github.com/Blosc/c-blosc/tree/c8072c2.
package blosc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HeaderBytes is the size of a header.
const HeaderBytes = 16

const (
	flagShuffled    = 0x01
	flagStored      = 0x02
	flagBitShuffled = 0x04
	flagReserved    = 0x08
	flagWhole       = 0x10

	// When blocks are split into streams.
	maxSplits           = 16
	minElementsOfSplits = 128
)

// Header is a buffer's parsed header. Only Parse makes valid ones.
type Header struct {
	// Bytes is the decoded size, BlockBytes that of a block (the last may be shorter), and
	// StoredBytes the size of the buffer.
	Bytes, BlockBytes, StoredBytes int64
	// ItemBytes is the size of the elements that were shuffled. Writers don't always set it to the
	// size of the array's elements.
	ItemBytes int

	flags byte
}

// codec returns the number of the codec.
func (h Header) codec() byte { return h.flags >> 5 }

// Stored reports whether the buffer is its header followed by the decoded bytes.
func (h Header) Stored() bool { return h.flags&flagStored != 0 }

// Parse reads and checks the header at the beginning of head. bufferBytes is how many bytes are
// available for the buffer, which may be more than head has, and decodedBytes is the size that it
// must decode to.
func Parse(head []byte, bufferBytes, decodedBytes int64) (Header, error) {
	if len(head) < HeaderBytes || bufferBytes < HeaderBytes {
		return Header{}, fmt.Errorf("blosc: %d bytes are not a buffer, whose header alone has %d", min(int64(len(head)), bufferBytes), HeaderBytes)
	}
	le := binary.LittleEndian
	h := Header{
		Bytes: int64(le.Uint32(head[4:])), BlockBytes: int64(le.Uint32(head[8:])), StoredBytes: int64(le.Uint32(head[12:])),
		ItemBytes: int(head[3]), flags: head[2],
	}
	switch version := head[0]; {
	case version > 2 && version < 8:
		return Header{}, fmt.Errorf("blosc: version %d: blosc2 is not supported: rewrite the array with blosc, zstd or gzip", version)
	case version != 2:
		return Header{}, fmt.Errorf("blosc: version %d: this is not a buffer of blosc", version)
	case h.Bytes != decodedBytes:
		return Header{}, fmt.Errorf("blosc: the buffer has %d bytes decoded, and it must have %d", h.Bytes, decodedBytes)
	case h.StoredBytes > bufferBytes || h.StoredBytes < HeaderBytes:
		return Header{}, fmt.Errorf("blosc: the buffer has %d bytes by its header, and %d are there", h.StoredBytes, bufferBytes)
	case h.flags&flagReserved != 0:
		return Header{}, fmt.Errorf("blosc: the header has a flag that blosc 1 does not set")
	case h.ItemBytes == 0:
		return Header{}, errors.New("blosc: elements have 0 bytes by its header")
	}
	return h, h.checkBlocks(head[1])
}

// checkBlocks checks the fields that describe blocks.
func (h Header) checkBlocks(codecVersion byte) error {
	switch {
	case h.Bytes == 0:
		return nil
	case h.Stored():
		if h.StoredBytes != h.Bytes+HeaderBytes {
			return fmt.Errorf("blosc: a stored buffer of %d bytes must have %d, and has %d by its header", h.Bytes, h.Bytes+HeaderBytes, h.StoredBytes)
		}
		return nil
	case h.BlockBytes == 0 || h.BlockBytes > h.Bytes:
		return fmt.Errorf("blosc: blocks of %d bytes in a buffer of %d", h.BlockBytes, h.Bytes)
	case int64(h.Blocks()) > (h.StoredBytes-HeaderBytes)/4:
		return fmt.Errorf("blosc: %d blocks don't fit into a buffer of %d bytes", h.Blocks(), h.StoredBytes)
	case h.codec() >= byte(len(codecs)) || codecVersion != 1:
		return fmt.Errorf("blosc: codec %d of version %d is not known", h.codec(), codecVersion)
	case h.splits(h.BlockBytes) > 1 && h.BlockBytes%int64(h.ItemBytes) != 0:
		return fmt.Errorf("blosc: blocks of %d bytes can't be split into %d streams", h.BlockBytes, h.ItemBytes)
	}
	return nil
}

// Blocks returns the number of blocks. A stored buffer is one block.
func (h Header) Blocks() int {
	switch {
	case h.Bytes == 0:
		return 0
	case h.Stored():
		return 1
	}
	return int((h.Bytes + h.BlockBytes - 1) / h.BlockBytes)
}

// BlocksOf returns the range of blocks, last exclusive, that hold the decoded bytes [begin, end).
func (h Header) BlocksOf(begin, end int64) (first, last int) {
	switch {
	case begin >= end:
		return 0, 0
	case h.Stored():
		return 0, 1
	}
	return int(begin / h.BlockBytes), int((end + h.BlockBytes - 1) / h.BlockBytes)
}

// Range returns the decoded bytes of a range of blocks, last exclusive.
func (h Header) Range(first, last int) (begin, end int64) {
	if h.Stored() {
		return int64(first) * h.Bytes, int64(last) * h.Bytes
	}
	return min(int64(first)*h.BlockBytes, h.Bytes), min(int64(last)*h.BlockBytes, h.Bytes)
}

// StartsBytes returns the size of the header with the starts of all blocks. That many bytes of a
// buffer are enough to find its blocks.
func (h Header) StartsBytes() int64 {
	if h.Stored() {
		return HeaderBytes
	}
	return HeaderBytes + 4*int64(h.Blocks())
}

// Start returns the offset of a block in the buffer. starts are the buffer's first StartsBytes.
func (h Header) Start(starts []byte, block int) (int64, error) {
	if h.Stored() {
		return HeaderBytes, nil
	}
	at := int64(binary.LittleEndian.Uint32(starts[HeaderBytes+4*block:]))
	if at < h.StartsBytes() || at > h.StoredBytes-4 {
		return 0, fmt.Errorf("blosc: block %d begins at %d, and the buffer's blocks are at [%d, %d)", block, at, h.StartsBytes(), h.StoredBytes)
	}
	return at, nil
}

// splits returns the number of streams of a block of the given size.
func (h Header) splits(blockBytes int64) int {
	if h.flags&flagWhole == 0 && h.ItemBytes <= maxSplits && h.BlockBytes/int64(h.ItemBytes) >= minElementsOfSplits && blockBytes == h.BlockBytes {
		return h.ItemBytes
	}
	return 1
}
