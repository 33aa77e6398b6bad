// Package diskcache keeps objects of a slow storage, such as a bucket, on a local disk. It is
// a storage.Storage over another one: what is asked for and is on the disk is read from
// there, the rest is read below, in whole pages, and written to the disk on the way.
//
//	fetch ──Submit──► cached ──what is missing──► remote
//	                    │
//	                    └─ uring ─► DIR/v1/ab/….data, ….sums
//
// The cache never changes a byte of what is read, and its faults are never a reader's: a
// page that is not what it was is read below again, and so is all of it when the disk
// fails. Reads fail only with the errors of the storage below.
//
// # The directory
//
//	DIR/CACHEDIR.TAG          "Signature: 8a477f597d28d172789f06886806bc55\n# lsiofs cache 1\n"
//	DIR/v1/ab/<32 hex>.data   the object's bytes, sparse: page i is at 4096·i; the last page
//	                          is filled up with zeros, so its length is a multiple of 4096
//	DIR/v1/ab/<32 hex>.sums   a header of 4096 bytes, then a sum for each page
//
// Directories have mode 0700 and files 0600. The name is the object's key in hexadecimal,
// its first two digits are the folder's name:
//
//	key = first 16 bytes of SHA-256("lsiofs cache 1\n" URL "\n" validator "\n" size "\n")
//
// URL and validator are what Config.Identify says, the size is decimal. So a name stands
// for bytes that never change: an object that is overwritten in its bucket has another
// validator, and another name. The header (numbers are little-endian):
//
//	   0  "lsiofsCC"
//	   8  u32 version, 1
//	  12  u32 bytes of a page, 4096
//	  16  u64 bytes of the object
//	  24  u64 when it was made, unix seconds
//	  32  u32 bytes of the URL
//	  36  u32 bytes of the validator
//	  40  URL, validator: for people; together at most 4040 bytes, else cut
//	      zeros
//	4088  u64 xxh3 of bytes [0, 4088)
//
// and behind it, at 4096+4·i for page i:
//
//	u32   0: the page is not here
//	      else crc32c(key ‖ u64 i ‖ the page's 4096 bytes), 1 where that is 0
//
// # Why it can be trusted
//
// A page is written first, its sum after that. Nothing is flushed. Every page that is read
// is checked, in memory that nobody else writes to. So whatever has become of it — it was
// torn by a crash, lost by a disk, punched out by another process, or is another object's
// or another page's — its sum does not match, and it is missing. It is counted
// (Stats.BadPages), its sum is taken back, and it is read below.
//
// Any number of processes may share a directory. They need no locks for data: a name stands
// for the same bytes for all of them, so two who write a page write the same. Locks (flock)
// are held for two purposes, and the kernel frees them with their process: who opens,
// makes or removes an object's files has its folder to itself for that; and who has an
// object open holds its .sums shared, so that whoever wants to remove it passes over it.
// Pages that two miss at the same time are fetched by one of them: it locks their range of the
// .data file, and the other waits for them for a bounded time (claims.go).
// An object whose header or lengths are wrong is removed and made anew.
//
// The directory itself counts only where it belongs to this user, nobody else may look into
// it, and it is a cache's or empty. Links are not followed.
//
// # Room
//
// The directory takes at most Config.BoundBytes of the disk, in blocks, all mounts
// together, and leaves Config.ReserveBytes free. It is counted when it is opened, every
// minute, and whenever it has grown by a part of what was left. What comes
//
//   - stays for good while it fits into the bound less the share;
//   - else it may stay in the share (Config.ShareBytes), until Done says that its chunk is
//     not wanted any more;
//   - else it passes through, and is not written.
//
// Where the disk takes less than what comes, what is read in whole chunks passes through, too,
// and the fill brings it when the disk has time. A reader that wants a part of a planned chunk
// waits for the disk: else each part would be a request of its own. The fill comes back at its
// end for what it had passed by, as it was on its way to a reader, and that was lost.
//
// What stays is never given up for what comes later: in an epoch that is read in a
// shuffled order that gives as many hits as any rule can, but for the share, and least
// recently used gives almost none. Only objects that no living mount uses are removed to
// make room, those first that were used longest ago (the mtime of .sums, which a mount sets
// when it opens an object and every hour).
//
// # Faults of the disk
//
//	ENOSPC, EDQUOT        nothing is added for 30 s; what is here is used
//	EMFILE and the like   this object is read below, this time
//	all others            the cache is not used any more by this mount
//
// Each is logged once.
//
// # Decoded shards
//
// A compressed shard that is decoded as a whole is kept on a Shelf, as a Decoded: pages and
// sums like those of other objects. One decoder writes it from front to back, and readers
// follow one block after it. Shelves lie in an arena:
//
//   - NewShelf: in the cache's directory (kept.go). A decoded shard is an object there, whose
//     identity is that of the compressed object with the codec and whatever else changes a
//     decoded byte (DecodedIdentity). The sums of the last block are written once the decoder
//     has found the shard right to its end, so one that has all its sums is whole and right;
//     one that has not is decoded again from its first byte. Who decodes it has its .data
//     file claimed; other mounts follow. Room for what an order reads at a time is set aside
//     of the bound. A shard that no reader needs any more makes room for others of its mount.
//     Once all shards of a dataset are whole, OpenPlain presents them as objects that are not
//     compressed: they are read, sealed and mapped as others are. What a disk loses of them is
//     brought by decoding the shard again, to its end, as that shows that it is right.
//   - NewSpool: in a file without a name (nameless.go), which is gone with the process.
//
// # Sealed objects
//
// An object that is here as a whole and in the page cache is read and mapped like a file of
// a disk, through package local: it is flushed, all its pages are checked once, and its
// file's version is the same before and after that. Local looks at the version after each
// read and each copy, so a page that is written or dropped afterwards, by whomever, ends the
// seal: what was copied is forgotten and read as anything else is (sealed.go, mapping.go).
package diskcache
