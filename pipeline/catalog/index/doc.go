// Package index stores where the records of a dataset's shards begin and end. It packs
// that into a few bits a record, writes it to a file, and answers from the mapped file.
// It neither looks for shards nor reads them: callers give it the records.
//
//	records of a shard ─ Packer ─► Blob        one shard, packed: bits, block, blob, losses
//	blobs ─ Build.Add ─► journal               what is finished outlives a crash: build, journal
//	all blobs ─ Build.Seal ─► Image            one checked file, mapped: seal, image, judged
//	Store ─ Load ─► Image                      the directory: store, mapping, trust, beside
//	Store ─ OpenJournals ─► Journals           a dataset that grows: journals, segment
//	some of its blobs ─ SealSnapshot ─► Image  under a name of its own: snapshots
//
// A Store is the index directory as one dataset sees it. Load gives the Image of an
// earlier run, if it is whole and of the same dataset and format (Key). Callers compare
// its shards with those that are there now, take over the blobs of the unchanged ones,
// and make a Build of the rest. Without a directory that can be written, all of it works
// in memory, and a warning says so.
//
// An Image has a Blob for each shard, and a Blob answers by record. Blobs are slices of
// the Image's bytes: reading one allocates nothing, and none may be used once the Image
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
//	           of parts, 32 points; from bit 16 on 64 KiB that a decoder takes, 0: not known), u32
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
//	points     points: 32 bytes each: places inside of members where decoding can go on: offset in the
//	           decoded shard, in the file in bits, u32 checksum of the member up to there, u32
//	           size of its state, where that begins in states
//	states     points: what a decoder needs besides to go on at each: of gzip its window, packed
//	counts     points: how many, bytes of their states
//
// A gap is the next record's start minus this one's end; it is negative where records
// overlap. So a size is found in O(1), and an offset by a sum over at most 127 values.
// Equal values take no space.
//
// Pages of a mapped file may have to be read again later, and that may fail. So an index
// of up to 16 MiB is copied to memory and checked there, and so is any index on a file
// system of another machine or process. A larger one stays mapped; an error of its disk
// ends the process.
//
// What an index says is believed. So it counts only if nobody else could have written it
// (trust.go). The version is part of the hash in an index's name: the index of another
// version stays as it is, and a new one is built beside it.
//
// # Journals
//
// A build writes each finished shard to a journal, so that an interrupted build can go
// on. A journal has a head ("lsiofsJN", version, what it is of, xxh3 of the format), and
// an entry for each finished shard: xxh3 of all that follows in the entry, size of the
// entry's head and of the blob, size, mtime, inode and ctime of the shard, u32 codec, u32
// size of the path, path padded to 8, blob. A journal only grows. Everything behind the
// last whole entry is ignored.
//
// # Datasets that grow
//
// Journals are what is known of a dataset whose files come and go: any number of journals
// of 32 MiB, mapped, none of which is ever sealed. Each process writes to its own and reads
// those of the others. Blobs stay where they were written, so a shard costs no memory but
// for its Place. A journal in which little is wanted any more is emptied into another one
// and removed: all of them hold at most twice what is wanted and 64 MiB.
//
// A snapshot is sealed by copying its shards' blobs into an index of its own, named by its
// fingerprint. It is locked (flock, shared) while it is open. When another one is sealed,
// those are removed that nobody has open, but for the newest two.
//
// # Beside the index
//
// Others may keep files beside an index, by name and ending: SaveBeside and LoadBeside.
// Image.Identity says which index such a file was computed from. The text behind the last
// fingerprints is kept there too: Recall gives it, so that somebody can say how a dataset
// has changed.
package index
