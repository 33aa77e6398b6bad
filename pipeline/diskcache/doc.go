// Package diskcache keeps objects of a slow storage, such as a bucket, on a local disk. It is a
// storage.Storage over another one: cached pages are read from the disk. The others are read below,
// in whole pages, and written to the disk.
//
//	read ──Submit──► diskcache ──missing pages──► remote
//	                    │
//	                    └─ uring ─► DIR/v1/ab/….data, ….sums
//
// The cache never changes a byte of what is read, and its faults never become a reader's: a page
// that is not what was written is read below again, and if the disk fails so is everything. Reads
// fail only with errors of the storage below.
//
// # The directory
//
//	DIR/CACHEDIR.TAG          "Signature: 8a477f597d28d172789f06886806bc55\n# lsiofs cache 1\n"
//	DIR/v1/ab/<32 hex>.data   the object's bytes, sparse: page i is at 4096·i; the last page
//	                          is padded with zeros, so its length is a multiple of 4096
//	DIR/v1/ab/<32 hex>.sums   a header of 4096 bytes, then a sum for each page
//
// Directories have mode 0700 and files 0600. The file name is the object's key in hexadecimal, and
// its first two digits are the folder's name:
//
//	key = first 16 bytes of SHA-256("lsiofs cache 1\n" URL "\n" validator "\n" size "\n")
//
// Config.Identify returns URL and validator; the size is decimal. So a name stands for bytes that
// never change: an object that is overwritten in its bucket has another validator, and so another
// name. The header (numbers are little-endian):
//
//	   0  "lsiofsCC"
//	   8  u32 version, 1
//	  12  u32 bytes of a page, 4096
//	  16  u64 bytes of the object
//	  24  u64 when it was created, unix seconds
//	  32  u32 bytes of the URL
//	  36  u32 bytes of the validator
//	  40  URL, validator: for people; cut to 4040 bytes together
//	      zeros
//	4088  u64 xxh3 of bytes [0, 4088)
//
// and after it, at 4096+4·i for page i:
//
//	u32   0: the page is missing
//	      else crc32c(key ‖ u64 i ‖ the page's 4096 bytes), or 1 if that is 0
//
// # Why it can be trusted
//
// A page is written before its sum. Nothing is flushed but what is sealed or noted as checked: then
// a disk that fails shows it, and the object is given up. Every page that is read is checked, in
// memory that nothing else writes to; those of a sealed object are checked once (see below). If a
// page was torn by a crash, lost by a disk, punched out by another process, or belongs to another
// object or place, its sum does not match, and it is missing: it is counted (Stats.BadPages), its
// sum is cleared, and it is read below.
//
// Any number of processes may share a directory. They need no locks for data, because a name stands
// for the same bytes in all of them: two processes that write a page write the same. Locks (flock)
// have two purposes, and the kernel frees them when a process ends: a process that opens, creates
// or removes an object's files locks the folder meanwhile, and a process that has an object open
// holds a shared lock of its .sums file, so that others don't remove it. If two processes miss the
// same pages at the same time, one of them locks their range of the .data file and fetches them,
// and the other waits for them for a bounded time (claims.go). An object with an invalid header or
// length is removed and created again.
//
// The directory must belong to this user, be closed to all others, and be a cache's or empty. Links
// are not followed.
//
// # Room
//
// All mounts together take at most Config.BoundBytes of the disk, in blocks, and leave
// Config.ReserveBytes free. The directory is counted when it is opened, every minute, and whenever
// it has grown by a part of what was left. Data that arrives
//
//   - stays permanently while it fits into the bound minus the share;
//   - otherwise it may stay in the share (Config.ShareBytes) until its block is passed;
//   - otherwise it passes through, and is not written.
//
// If the disk is slower than the storage below, what is read in whole chunks passes through as well,
// and the fill fetches it when the disk has time. A reader that wants a part of an announced chunk
// waits for the disk, because otherwise each part would be a separate request. At its end, the fill
// comes back for pages that it skipped because they were in transit to a reader, and that were lost.
//
// Permanent data is never given up for what arrives later. In an epoch that is read in shuffled
// order no rule gives more hits, except by means of the share, and least recently used gives almost
// none. Only objects that no living mount uses are removed to make room, least recently used first
// (by the mtime of .sums, which a mount sets when it opens an object and every hour).
//
// # Faults of the disk
//
//	ENOSPC, EDQUOT        nothing is added for 30 s; what is cached is used
//	EMFILE and the like   this object is read below, this time
//	all others            the cache is not used any more by this mount
//
// Each is logged once.
//
// # Decoded shards
//
// A compressed shard that is decoded completely is kept on a Shelf, as a Decoded: pages and sums
// like those of other objects. One decoder writes it from front to back, and readers follow one
// block behind it. The shards of a shelf are in an arena:
//
//   - NewShelf: in the cache's directory (kept.go). A decoded shard is an object there, whose
//     identity consists of that of the compressed object, the codec, and everything else that changes
//     a decoded byte (DecodedIdentity). The sums of the last block are written when the decoder has
//     found the shard valid to its end. So a shard with all its sums is complete and valid; any other
//     is decoded again from its first byte. The mount that decodes it has claimed its .data file;
//     other mounts follow. Room for what an order reads at a time is set aside. A shard that no
//     reader needs any more makes room for others of its mount. When all shards of a dataset are
//     complete, OpenPlain presents them as uncompressed objects, which are read, sealed and mapped
//     like others. What a disk loses of them is restored by decoding the shard again, to its end,
//     because only that shows that it is valid. The fill in the background leaves out compressed
//     objects whose decoded form is complete (replaced.go).
//   - NewSpool: in a file without a name (nameless.go), which is gone when the process ends.
//
// # Sealed objects
//
// An object that is complete in the cache is sealed when it is read: it is flushed, and its file's
// version is noted. From then on what the page cache holds of it is read and mapped like a local
// file, through package local; each page is checked once, before it is first used. Local compares
// the version after each read and each copy, so a page that any process writes or drops ends the
// seal: what was copied is discarded and read again like anything else (sealed.go). Once all pages
// of a version were checked, later mounts need not check them until the machine restarts: on a file
// system that only this machine writes to, that is noted in an extended attribute of the .sums file
// (proof.go).
package diskcache
