// Package zarr interprets Zarr stores: it parses metadata documents, computes which bytes of which
// files a crop of an array needs, numbers the crops, and copies them out of decoded chunks. It does
// no I/O, starts no goroutines and keeps no state; a storage that reads Zarr is built on top of it.
//
// # Words
//
// Zarr uses "chunk" for several things, and so do lsiofs's messages. Here:
//
//	array    an n-dimensional array; it has one metadata document and many objects
//	object   a file that holds chunks: a Zarr shard, or an unsharded Zarr chunk
//	chunk    the smallest box of elements that is encoded on its own: a Zarr inner chunk,
//	         or an unsharded Zarr chunk
//	field    one of the arrays that crops are cut from
//	cube     the fields that are cut together
//	crop     a box of elements, one of each field: a record
//	origin   the first element of a crop, along each dimension
//	position a place in the grid of origins
//	part     the elements that one chunk has of a crop
//
// # From a store to a record
//
//	zarr.json, .zarray ──► Array: shape, dtype, grids, keys, codecs, fill value
//	                        │
//	crop, stride, region ──►│ Origins: how many crops, and in which order
//	                        ▼
//	    ordinal ─► Position ─► Origin ─► Jitter.Move         (which crop)
//	                                          │
//	                        Crop.Parts ◄──────┘              (which chunks have it)
//	                          │
//	   chunk ─► ObjectOf ─► Keys.Append ─► ParseIndex        (which bytes of which file)
//	                          │
//	   Chain: what to undo ──►│ codec.Decoder, blosc.Decoder (bytes of the chunk)
//	                          ▼
//	                     Copier.Copy                         (bytes of the record)
//
// # Metadata documents
//
// ParseV3 reads zarr.json (Zarr 3.1), ParseV2 reads .zarray, and Parse…Group the documents of
// groups. They take the bytes of a document and its path, which is only used in errors. If a
// document violates its specification, or needs an unsupported feature, they return an *Error that
// lists all its problems, each with the member at fault and what to do.
//
// A document may have MaxDocumentBytes and be nested MaxDepth deep. Wrong documents are refused
// rather than guessed at, with one exception: NaN, Infinity and -Infinity without quotes are
// accepted, because Python writes them.
//
// Supported data types: bool, (u)int8…64, float16…64, complex64/128, bfloat16, raw bits, dates and
// durations; of v2 also strings of fixed length and structures of all these. Strings of variable
// length, objects and types below one byte are refused.
//
// Supported codecs, of both versions (v3 has some of them as numcodecs.*):
//
//	bytes, transpose, sharding_indexed, crc32c, gzip, zlib, zstd, blosc, lz4, bz2,
//	shuffle, delta, fixedscaleoffset, bitround, quantize, fletcher32
//
// Sharding may be nested up to MaxLevels deep. Codecs before or after sharding are refused.
//
// # Records
//
// A crop of a field is its elements in C order, always little-endian. Crops of several fields
// follow each other, each padded with zeros to a multiple of 64 bytes, or without gaps if they are
// stacked. RowOf computes that layout and its NumPy dtype.
//
// Crops are numbered in bisection order (type Bisection): the box of positions is halved along the
// side that spans the most chunks, until one is left; the first half comes first. So each run of
// consecutive numbers is a compact region, which needs few chunks.
//
// # Numbers and limits
//
// Edges of arrays are below MaxEdge. All sizes are in elements, or in bytes if the name has Bytes
// in it. Nothing is allocated just because a document claims a size. Unless documented otherwise,
// functions do not keep the slices they are given, and values are safe for concurrent use once
// made.
//
// The specifications are Zarr v3.1 and v2 as of
// https://github.com/zarr-developers/zarr-specs/tree/fc7dd9c/docs, with the extensions of
// https://github.com/zarr-developers/zarr-extensions/tree/4da7b37.
package zarr
