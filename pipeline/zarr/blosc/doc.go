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
