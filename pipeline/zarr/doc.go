// Package zarr says what a Zarr store holds and where: it reads metadata documents, computes
// which bytes of which files a crop of an array needs, numbers the crops, and copies them out
// of decoded bricks. It does no I/O, starts no goroutines and keeps no state; a storage that
// reads Zarr is built on top of it.
//
// # Words
//
// Zarr calls several things a chunk, and so does lsiofs. Here:
//
//	array    an n-dimensional array; it has one metadata document and many objects
//	object   a file that holds bricks: a Zarr shard, or an unsharded Zarr chunk
//	brick    the smallest box of elements that is encoded on its own: a Zarr inner chunk,
//	         or an unsharded Zarr chunk
//	field    one of the arrays that crops are cut from
//	cube     the fields that are cut together
//	crop     a box of elements, one of each field: a record
//	origin   the first element of a crop, along each dimension
//	position a place in the grid of origins
//	part     what one brick has of a crop
//
// # From a store to a record
//
//	zarr.json, .zarray ──► Array: shape, dtype, grids, keys, codecs, fill value
//	                        │
//	crop, stride, region ──►│ Origins: how many crops, and in which order
//	                        ▼
//	    ordinal ─► Position ─► Origin ─► Jitter.Move         (which crop)
//	                                          │
//	                        Crop.Parts ◄──────┘              (which bricks have it)
//	                          │
//	   brick ─► Grid.Object ─► Keys.Append ─► ParseIndex     (which bytes of which file)
//	                          │
//	   Chain: what to undo ──►│ codec.Decoder, blosc.Buffer  (bytes of the brick)
//	                          ▼
//	                     Copier.Copy                         (bytes of the record)
//
// # Metadata documents
//
// ParseV3 reads zarr.json (Zarr 3.1), ParseV2 reads .zarray, and Parse…Group the documents of
// groups. They take the bytes of a document and its path, which is only used in errors. A
// document that is not as its specification says, or that needs something that is missing
// here, gives an *Error that lists all its problems, each with the member at fault and what
// to do.
//
// A document may have MaxDocumentBytes and be nested MaxDepth deep. What is wrong is refused
// rather than guessed, with one exception: NaN, Infinity and -Infinity without quotes are
// accepted, because Python writes them.
//
// Supported data types: bool, (u)int8…64, float16…64, complex64/128, bfloat16, raw bits, dates
// and durations; of v2 also strings of fixed length and structures of all these. Strings of
// variable length, objects and types below one byte are refused.
//
// Supported codecs, of both versions (v3 has some of them as numcodecs.*):
//
//	bytes, transpose, sharding_indexed, crc32c, gzip, zlib, zstd, blosc, lz4, bz2,
//	shuffle, delta, fixedscaleoffset, bitround, quantize, fletcher32
//
// Sharding may be nested up to MaxLevels deep. Transposing before sharding, and compressing
// behind it, is refused.
//
// # Records
//
// A crop of a field is its elements in C order, always little-endian. Crops of several fields
// lie one behind the other, each filled up with zeros to a multiple of 64 bytes, or without
// gaps if they are stacked. RowOf computes that layout and how NumPy describes it.
//
// Crops are numbered in bisection order (type Bisection): the box of positions is halved
// along the side that spans most bricks, until one is left; the first half comes first. So
// each run of consecutive numbers is a compact region, which needs few bricks.
//
// # Numbers and limits
//
// Edges of arrays are below MaxEdge. All sizes are in elements, or in bytes where the name
// says so. No size that a document claims is allocated. Functions that take slices do not
// keep them, and values are safe for concurrent use once they are made, unless their comment
// says otherwise.
//
// The specifications are Zarr v3.1 and v2 as of
// https://github.com/zarr-developers/zarr-specs/tree/fc7dd9c/docs, with the extensions of
// https://github.com/zarr-developers/zarr-extensions/tree/4da7b37.
package zarr
