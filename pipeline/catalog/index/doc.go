// Package index is what lsiofs keeps on disk of a dataset: for each shard, where its
// records begin and end. It packs that into some bits a record, stores it, and gives it
// back, checked, without reading it into memory. It does not look for shards, and does
// not read them: callers hand it records.
//
//	records of a shard ─ Packer ─► Blob        one shard, packed: bits, block, blob, losses
//	blobs ─ Build.Add ─► journal               what is finished outlives a crash: build, journal
//	all blobs ─ Build.Seal ─► Image            one checked file, mapped: seal, image, judged
//	Store ─ Load ─► Image                      the directory: store, mapping, trust, beside
//
// A Store is the index directory as one dataset sees it. Load gives the Image of an
// earlier run, if it is whole and of the same thing (Key). Callers compare its shards
// with what is there now, take the blobs of those that are the same, and make a Build
// of the rest. Build says in which order it is used. Without a directory, or with one
// that can't be written, all of it works in memory, and a warning says so.
//
// An Image answers by shard, a Blob by record of that shard. Blobs are slices of the
// Image's bytes: reading one allocates nothing, and none may be used once the Image
// is closed.
//
// # The sealed index
//
// One file, version 3. Numbers are little-endian, 64 bits where nothing else is
// said; parts begin at multiples of 8.
//
//	header     256 bytes
//	  0        "lsiofsIX"
//	  8        version
//	  16       file size, shards, records, sum of record sizes, keyed (0 or 1),
//	           offsets of table, starts, paths, judged; size of judged; offset
//	           and size of format; offsets of blobs and sums; xxh3 of sums
//	  136      what the index is of: SHA-256 of root, pattern, format
//	  168      the dataset's fingerprint
//	  200      zeros
//	  248      xxh3 of the header up to here
//	table      72 bytes a shard: offset of its path, u32 size of the path, u32
//	           codec (0 none, 1 gzip, 2 zstd, 3 lz4, 4 lc0's game, 5 lc0's tar), size in bytes, mtime in ns, inode,
//	           offset and size of its blob, first half of its records' IDs, ctime in ns
//	starts     number of each shard's first record, and of all records
//	paths      one behind the other
//	judged     files that were opened and are no shards: size, mtime, ctime, inode, u32
//	           size of the path, path, without padding
//	format     the format's name and numbers, as text
//	blobs      one a shard, in dataset order
//	sums       xxh3 of each 4 MiB from the end of the header to here
//
// A blob is one shard's index; its offsets are its own, so it is moved between
// journals and indexes as it is:
//
//	header     80 bytes: records, decoded bytes, sum of sizes, entry points,
//	           u32 flags (1 keyed, 2 compressed, 4 damaged, 8 unreadable, 16 made
//	           of parts), u32
//	           bytes of kind, members, growth vectors, records that grow, bytes of
//	           damage, bytes of data
//	blocks     32 bytes for each 128 records: offset of the first one, smallest
//	           size, smallest gap; offset of the data (48 bits), width of sizes
//	           and of gaps in bits (8 bits each, gaps lowest)
//	keys       keyed: the key hash of each record
//	vectors    20 numbers each: growth of a record at a position of so many digits
//	ordinals   of the records that grow, ascending
//	indexes    u32 each: the vector of that record
//	members    compressed: offset in the decoded shard and in the file, of each;
//	           of parts: of those that are kept
//	entries    compressed: one bit a record, lowest first: reading can start there
//	kind       of formats with kinds: what theirs says of the records, as text
//	damage     damaged: record, offset, offset in the file, reason; of parts: u32
//	           number of those that are listed, each so, but u32 size and name of
//	           the part, u32 size and reason; u32 number of reasons, of each its
//	           count, u32 size, reason
//	data       of each block: its records' sizes, minus the smallest; then from
//	           a byte on the gaps between them, minus the smallest
//
// A gap is the next record's start less this one's end; it is negative where
// records overlap. So a size is found in O(1), an offset by a sum over at most
// 127 values, and equal values cost nothing.
//
// The pages of a mapped file can go, and not come again: where the file system is
// another machine's or process' an index is copied to memory, and so is one of up to
// 16 MiB, and checked there. An error of the disk of a larger one ends the process.
//
// An index is believed, so it counts only where nobody else could have written
// it: trust.go. One of another version is that of another dataset (the version is
// in its name's hash), stays as it is, and a new one is built beside it.
//
// # Journals
//
// A journal has a head ("lsiofsJN", version, what it is of, xxh3 of the format),
// and an entry for each shard that was finished: xxh3 of all that follows in the
// entry, size of the entry's head and of the blob, size, mtime, inode and ctime
// of the shard, u32 codec, u32 size of the path, path padded to 8, blob. It only grows,
// and what is behind the first entry that is not whole does not count.
//
// # Beside the index
//
// Others may keep what they compute from an index in files beside it, by name and
// ending: SaveBeside, LoadBeside. Image.Identity says which index it was computed from.
// The text behind the last fingerprints lies there, too: Recall gives it, so that
// somebody can say how a dataset has changed.
package index
