// Package scan reads the pieces of shards whole, and lends their records in whatever order
// readers want them. It is one of the two ways in which package read reads: the one for
// compressed shards, and for all shards where memory holds what waits for its turn.
//
// A shuffled epoch comes back to a stretch of a shard again and again. So a piece (a run of
// consecutive records) is read once, whole, by one large read or by one decoder, and what of
// it has not gone out yet waits in memory. Where that is too little memory for compressed
// shards, they are decoded into a file first (package spool), and the pieces come from there.
//
// # Use
//
//	sc, err := scan.New(scan.Config{Index: …, Storage: …, Places: …, …})
//	r := sc.Open(sequence)           // as often as there are readers
//	err = r.Read(ctx, k, n, &loan)   // records k … k+n-1, or the first of them
//	…                                // use pinned.Records
//	pinned.Release()
//	r.Close()
//	sc.Close()                       // waits for what is under way
//
// A call of Read looks its records up, lends those that are there up to the first that is
// not, and has what comes next brought (package window says what that is). Only if the first
// record is missing does it wait.
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
// Where only a part of the records is ever asked for (the part of Config.Places), a piece is
// laid out without the others: a few of them come along where they lie between,
// but none is waited for, counted as live, or copied when memory is short.
//
// A load is a piece on its way. Which way that is follows from its shard:
//
//	not compressed, and in the page cache   mapped; package mapped says how
//	not compressed                          read, to where it stays
//	compressed                              brought by a decoder; package decode
//	compressed, and Config.Choice spools it read from the spool; package spool
//
// A piece that comes from the spool is compared with the checksums of what was written before
// anybody gets a byte of it. Who waits for one that was lost gets it through the spool once
// more, then from a decoder alone, so nobody waits in a circle.
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
// budget by the pieces that callers of Read wait for, the segments that loans
// pin, one segment, or while a larger piece is copied a 32nd of the budget, and, for
// compressed shards, one decoder for each caller that waits.
//
// Each piece that is held has a table: 16 bytes a record and 200 of its own, counted
// twice for the collector's sake. Of records below 50 bytes the tables take more
// than the records. So they count wherever memory is divided (package choose): for what
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
// each pass through a shard brings all of these (choose.Sizes.Lookahead).
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
//
// # Services
//
// Where Config.Plan is set, the storage is told which pieces come before they are read
// ahead, and told again for a reader that has waited for 10 ms. So a service's engine makes first what
// is needed first. A piece is one read there, of exactly its records.
//
// # Errors
//
// A load that fails is noted (Config.Note), and its error is given to those who wait for it;
// who wants the piece later has it brought again. A record whose own checksum is wrong fails
// alone, for as long as its piece is in memory. Where the checksum of a compressed shard is
// wrong, all its records fail from then on, for what it gave before can't be trusted.
// Whoever waits longer than Config.ReadTimeout gets pinned.ErrTimeout.
//
// # Goroutines and locks
//
// Where records carry checksums, or shards are spooled, a scanner has a goroutine for each
// processor, which looks at them; decoders, the spool and the maps have their own. Close ends
// all. Locks are taken in this order, never the other way:
//
//	Reader.mu ──► Scanner.mu ──┬─► decode.Set ──┐
//	                           ├─► spool.Spool ─┴─► (budget: atomic, without a lock)
//	                           └─► mapped.Maps
//
// These call back without their locks (decode.Work, spool.Owner, mapped.Owner), or
// return what there is to do (spool.News). So between the moment when one of them has taken a
// load up and the moment when the scanner is told, the load is in no list, and can't be
// taken back. Looking up what is in memory takes no lock: a look-up is an atomic load
// and a pin.
package scan
