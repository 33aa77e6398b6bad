// Package index stores where the records of a dataset's shards begin and end. It packs this into a
// few bits per record, writes it to a file, and answers from the mapped file. It neither finds
// shards nor reads them: callers pass in the records.
//
//	records of a shard ─ Packer ─► Blob        one shard, packed: bits, block, blob, losses
//	blobs ─ Build.Add ─► journal               finished shards survive a crash: build, journal
//	all blobs ─ Build.Seal ─► Image            one checked file, mapped: seal, image, judged
//	Store ─ Load ─► Image                      the directory: store, mapping, trust, beside
//	Store ─ OpenJournals ─► Journals           a dataset that grows: journals, segment
//	some of its blobs ─ SealSnapshot ─► Image  under a name of its own: snapshots
//
// A Store is one dataset's view of the index directory. Load returns the Image of an earlier run,
// if it is whole and of the same dataset and format (Key). Callers compare its shards with the
// present ones, take over the blobs of those that are unchanged, and make a Build of the rest.
// Without a writable directory, everything works in memory, and a warning is logged.
//
// An Image has a Blob for each shard, and a Blob answers by record. Blobs are slices of the Image's
// bytes: reading one does not allocate, and none may be used after the Image is closed.
//
// # The sealed index
//
// One file, version 3. Numbers are little-endian, 64 bits unless noted otherwise; parts begin at
// multiples of 8.
//
//	header     256 bytes
//	  0        "lsiofsIX"
//	  8        version
//	  16       file size, shards, records, sum of record sizes, keyed (0 or 1),
//	           offsets of table, starts, paths, judged; size of judged; offset
//	           and size of format; offsets of blobs and sums; xxh3 of sums
//	  136      key: SHA-256 of version, root, pattern, format
//	  168      the dataset's fingerprint
//	  200      generation
//	  208      zeros
//	  248      xxh3 of the header up to here
//	table      72 bytes per shard: offset of its path, u32 size of the path, u32
//	           codec (0 none, 1 gzip, 2 zstd, 3 lz4, 4 lc0's game, 5 lc0's tar), size in bytes, mtime in ns, inode,
//	           offset and size of its blob, first half of its records' IDs, ctime in ns
//	starts     number of each shard's first record, and number of all records
//	paths      concatenated
//	judged     files that were opened and are not shards: size, mtime, ctime, inode, u32
//	           size of the path, path, without padding
//	format     the format's name and numbers, as text
//	blobs      one per shard, in dataset order
//	sums       xxh3 of each 4 MiB from the end of the header to here
//
// A blob is one shard's index; its offsets are relative to itself, so it is copied between journals
// and indexes unchanged:
//
//	header     80 bytes: records, decoded bytes, sum of sizes, entry points,
//	           u32 flags (1 keyed, 2 compressed, 4 damaged, 8 unreadable, 16 made
//	           of parts, 32 points; from bit 16 on the memory of a decoder in units of 64 KiB,
//	           0: unknown), u32 bytes of kind, members, growth vectors, records that grow,
//	           bytes of damage, bytes of data
//	blocks     32 bytes for each 128 records: offset of the first one, smallest
//	           size, smallest gap; offset of the data (48 bits), width of sizes
//	           and of gaps in bits (8 bits each, gaps lowest)
//	keys       keyed: the key hash of each record
//	vectors    20 numbers each: growth of a record at a position, by its number of digits
//	ordinals   of the records that grow, ascending
//	indexes    u32 each: the vector of that record
//	members    compressed: offset in the decoded shard and in the file, of each;
//	           made of parts: of those that are kept
//	entries    compressed: one bit per record, lowest first: reading can start there
//	kind       formats with kinds: the format's description of the records, as text
//	damage     damaged: record, offset, offset in the file, reason; made of parts: u32
//	           number of those listed, each likewise, but with u32 size and name of
//	           the part, u32 size and reason; u32 number of reasons, for each its
//	           count, u32 size, reason
//	data       of each block: its records' sizes, minus the smallest; then, from
//	           the next byte on, the gaps between them, minus the smallest
//	points     points: 32 bytes each: places inside members where decoding can resume: offset in the
//	           decoded shard, in the file in bits, u32 checksum of the member up to there, u32
//	           size of its state, offset of its state in states
//	states     points: what else a decoder needs to resume at each: for gzip its window, packed
//	counts     points: their number, bytes of their states
//
// A gap is the next record's start minus this one's end; it is negative if records overlap. So a
// size is found in O(1), and an offset by a sum over at most 127 values. Equal values take no
// space.
//
// Pages of a mapped file may have to be read again later, and that may fail. So an index of up to
// 16 MiB is copied to memory and checked there, and so is any index on a network or FUSE file
// system. A larger one stays mapped; a disk error then kills the process.
//
// The content of an index is trusted. So it is used only if nobody else could have written it
// (store.go). The version is part of the hash in an index's name: the index of another version
// remains unchanged, and a new one is built next to it.
//
// # Journals
//
// A build writes each finished shard to a journal, so that an interrupted build can be resumed. A
// journal has a head ("lsiofsJN", u32 version, u32 generation, key, xxh3 of the format), and an
// entry for each finished shard: xxh3 of all that follows in the entry, size of the entry's head
// and of the blob, size, mtime, inode and ctime of the shard, u32 codec, u32 size of the path, path
// padded to 8, blob. A journal only grows. Everything after the last whole entry is ignored.
//
// # Datasets that grow
//
// The index of a dataset whose files come and go consists of journals: any number of them, of 32
// MiB each, mapped, none of which is ever sealed. Each process writes to its own and reads those of
// the others. Blobs stay where they were written, so a shard takes no memory except for its Place.
// A journal that is mostly unused is copied into another one and removed: all of them together take
// at most twice the used bytes plus 64 MiB.
//
// A snapshot is sealed by copying its shards' blobs into an index of its own, named by its
// fingerprint. It is locked (flock, shared) while it is open. Sealing another one removes those
// that no process has open, except for the newest two.
//
// # Next to the index
//
// Other packages may keep files next to an index, by name and ending: SaveBeside and LoadBeside.
// Image.Identity identifies the index from which a file was computed. The texts of the last
// fingerprints are kept there too: Recall returns one, for messages about how a dataset has
// changed.
package index
