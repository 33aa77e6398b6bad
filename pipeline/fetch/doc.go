// Package fetch turns references in order into record bytes in the same order,
// inside one memory budget. It knows nothing of what the bytes mean.
//
// # Pieces
//
// Data is read in pieces, runs of consecutive records of one shard. A piece of
// an uncompressed shard is read straight to where it stays; one of a compressed
// shard is a range of its decoded bytes, that a decoder on its way through the
// shard leaves behind. There is one cache of pieces for all readers:
//
//	Reader ──► table of pieces ──► entry: where each record lies, which have gone out
//	                │                        │
//	                │ missing                ▼
//	                ▼                     segment ◄── pinned by loans
//	              load ──► storage           ▲
//	                  ├──► decoder ──────────┘
//	                  └──► page cache (package mapped), in a segment's place
//
// Where only a part of the records is ever asked for (Config.Part), a piece is
// laid out without the others: a few of them come along where they lie between,
// but none is waited for, counted as live, or copied when memory is short.
//
// # Page cache
//
// A piece of an uncompressed shard that is all in the page cache is not read: it is
// mapped, and its records go out from there. See package mapped. Such bytes may change
// under those who copy them, who see to Loan.Mapped, Leased, Check and Fault.
//
// # Gather
//
// Where no shard is compressed, and memory does not hold what waits in the shuffle,
// pieces would be read again and again. Then package gather reads exactly the records
// that come next, in memory of the same budget; its own page says how. What follows
// about pieces, segments and loads is not about it.
//
// # Spool
//
// A compressed shard in which decoding can start at few places (its members or
// frames, wherever records begin), in an order that jumps about, is decoded once into a file, and its pieces are read from there
// like those of an uncompressed one, as soon as they have come. A shard leaves
// the spool when another needs its room: first one of which all has gone out.
// The file has no name, so nothing is left of it however the process ends.
//
// A disk may lose what was written, long after it was: then the kernel shows zeros.
// So each block of 64 KiB or less has a checksum, taken from the decoded bytes before
// they are written, and a piece is compared with it before anybody gets a byte of it.
// A shard that does not come back as it was written, or can't be read, leaves the
// spool and is decoded again. Who waits gets its piece that way: through the spool
// once more, then from a decoder alone, so nobody waits in a circle. A shard that was
// damaged twice in ten minutes is read by decoders until these are over.
//
// # Memory
//
// Segments are memory outside of the Go heap, filled one after the other. Below
// the budget nothing is freed, so small datasets stay in memory for all epochs.
// At the budget the oldest segment that no loan pins goes: what of it has not
// gone out yet is copied together into a new one, so that a few records never
// pin many; when hardly anything has gone out it is dropped, and read again
// when wanted.
//
// A piece that somebody waits for gets memory whatever the budget says, so
// nothing deadlocks; what is read ahead does not. So HeldBytes may exceed the
// budget by the pieces that callers of Lend wait for, the segments that loans
// pin, one segment, and, for compressed shards, one decoder for each caller
// that waits.
//
// Each piece that is held has a table: 16 bytes a record and 200 of its own, counted
// twice for the collector's sake. Of records below 50 bytes the tables take more
// than the records. So they count wherever memory is divided (holding): for what
// can be held whole, for what waits in a shuffle, for what is read ahead, and for
// what a decoder keeps on its way.
//
// # How often bytes are decoded
//
// An epoch decodes the bytes of compressed shards once where memory holds them or
// the spool does, and where what waits in the shuffle fits. Shards that can be
// entered often enough are scanned while each byte is reckoned to be decoded up
// to 3 times again (of a full shuffle, 64 times); else they are spooled. The
// reckoning is rough where the least memory meets records of a few bytes: whatever
// auto chooses, a test over random datasets, orders and budgets has an epoch
// decode no more than 32 times what the shards are, of a full shuffle 256 times.
// That is for readers that keep step with each other.
//
// A scan that is asked for where auto would have spooled has no such bound, but gets
// on: its readers look as far ahead as a quarter of the memory holds pieces, and
// each pass through a shard brings all of these (looking).
//
// # Who waits for whom
//
// A load that a reader waits for starts at once, beside whatever is read ahead.
// Loads of one piece are shared. A load whose reader gave up waiting goes on.
// Compressed shards are decoded by decoders that pause where
// nothing more is wanted of them, and go on from there; one that waits for
// storage keeps no processor from the others. Each has a processor for as long as
// its window is worth being in that one's cache.
//
// Who waits for what is counted in Config.Meter: by the load, the decoder that
// brings it, and what that one itself waits for.
//
// # Jumps
//
// What is read ahead follows the reader: nothing for one that samples, as much
// as the storage likes for one that reads on. A seek forward to what has been
// looked at, or a step back, changes nothing. A reader that goes elsewhere, or is
// closed, takes back what it alone wanted and what has not begun: loads that wait
// for a decoder or for room in the spool, and reads in the queues of storage and
// engine, which ask before they begin one whether it is still wanted. What the
// kernel has begun comes to its end, and is kept as long as there is room: a
// buffer is free at the completion, never before.
package fetch
