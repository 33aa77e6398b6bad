// Package blosc decodes buffers of blosc 1, the compressor that Zarr uses most. Any range of a
// buffer's blocks can be decoded without the others: a crop of a large brick rarely needs all.
//
//	u8 version: 2 │ u8 version of the codec: 1 │ u8 flags │ u8 size of an element
//	u32 decoded bytes │ u32 bytes of a block │ u32 bytes of the buffer, with this header
//	i32 start of block 0, from the buffer's first byte │ start of block 1 │ …
//	blocks, in any order: i32 size │ data │ i32 size │ data │ …
//
// All numbers are little-endian. The flags:
//
//	0x01  bytes are shuffled: in each block come first the first bytes of all elements
//	0x02  stored: the decoded bytes follow the header, and nothing else counts
//	0x04  bits are shuffled
//	0x08  must be 0
//	0x10  blocks are not split
//	0xE0  codec: blosclz, lz4, snappy, zlib, zstd
//
// A block is split into as many streams of equal size as an element has bytes, if 0x10 is not
// set, elements have at most 16 bytes, a block has at least 128 elements, and it is not a
// shorter last one. Otherwise it has one stream. A stream of its decoded size is stored.
//
// A use:
//
//	h, err := blosc.Parse(buffer, int64(len(buffer)), decodedBytes)
//	…
//	d := blosc.NewDecoder()
//	defer d.Close()
//	first, last := h.BlocksOf(begin, end)                // of the decoded bytes wanted
//	low, high := h.Range(first, last)
//	err = d.Decode(dst[:high-low], buffer, h, first, last)
//
// Nothing that a buffer claims is allocated: its decoded size must be the one that the caller
// knows, and a block is not larger than that. Every error means that a buffer is damaged, or
// that it was not written by blosc 1; its text says which block and what.
//
// The format is Blosc/c-blosc README_CHUNK_FORMAT.rst, and where that is silent blosc.c and
// blosclz.c as of https://github.com/Blosc/c-blosc/tree/c8072c2.
package blosc
