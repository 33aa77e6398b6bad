// Package scan reads whole pieces of shards, and returns their records in whatever order readers
// ask for them. It is one of the two ways in which package read reads: the one for compressed
// shards, and for all shards if memory holds what waits in the shuffle.
//
// A shuffled epoch returns to a stretch of a shard again and again. So a piece (a run of
// consecutive records) is read once, whole, by one large read or by one decoder, and its records
// wait in memory until they are delivered. If memory is too small for that and shards are
// compressed, they are decoded to a disk first (decode.Spool), and the pieces come from there.
//
// # Use
//
//	sc := scan.New(&options, shelf, plan)
//	r := sc.Open(sequence)             // one per reader
//	err = r.Read(ctx, k, n, &records)  // records k … k+n-1, or the first of them
//	…                                  // use records, a budget.Records
//	records.Release()
//	r.Close()
//	sc.Close()                         // waits for loads in progress
//
// Read looks its records up, pins and returns those that are in memory up to the first that is not,
// and starts loads of what comes next (package window determines what that is). It waits only if
// the first record is missing.
//
// # Pieces
//
// Data is read in pieces, runs of consecutive records of one shard. A piece of an uncompressed
// shard is read directly to where it stays. A piece of a compressed shard is a range of its decoded
// bytes, which a decoder stores as it passes. There is one cache of pieces for all readers:
//
//	Reader ──► table of pieces ──► entry: where each record is, which were delivered
//	                │                        │
//	                │ missing                ▼
//	                ▼                     segment ◄── pinned by budget.Records
//	              load ──► storage           ▲
//	                  ├──► decoder ──────────┘
//	                  └──► page cache (package mapped), instead of a segment
//
// If only a part of the records is ever asked for (Options.Part), the layout of a
// piece leaves out the others. A few of them are read because they lie between the needed ones, but
// they are not waited for, counted as live, or copied when memory is short.
//
// A load is a piece on its way to memory. Its shard determines how it gets there:
//
//	not compressed, and in the page cache   mapped; see package mapped
//	not compressed                          read, directly to where it stays
//	compressed                              by a decoder; see package decode
//	compressed, and Options.Choice spools it read from the spool; see decode.Spool
//
// A piece that comes from the spool is compared with the checksums of what was written before a
// reader gets a byte of it. If a piece was lost there, waiting readers get it through the spool
// once more, then directly from a decoder, so the retries end.
//
// # Memory
//
// Segments are memory outside of the Go heap, filled one after the other. Below the budget nothing
// is freed, so small datasets stay in memory for all epochs. At the budget, the oldest segment that
// is not pinned is freed. Its undelivered records are first copied together into a new segment, so
// that a few records never keep many in memory. If hardly anything of it was delivered, it is
// dropped instead, and read again when needed; but first paused decoders are closed that are not needed
// soon, or that can be opened again by decoding less than they hold.
//
// A piece that a reader waits for gets memory whatever the budget, so nothing deadlocks; reading
// ahead does not. So HeldBytes may exceed the budget by the pieces that calls of Read wait for, the
// pinned segments, one segment (or, while a larger piece is copied, a 32nd of the budget) and, for
// compressed shards, one decoder per waiting call.
//
// Each piece in memory has a table of 16 bytes per record plus 200, counted twice because of the
// garbage collector. Tables of records below 50 bytes take more than the records. So they count
// wherever memory is divided (package choose): for what can be held whole, for what waits in a
// shuffle, for what is read ahead, and for what a decoder stores as it passes.
//
// # How often bytes are decoded
//
// An epoch decodes the bytes of compressed shards once if memory or the spool holds them, or if
// what waits in the shuffle fits into memory. Shards in which decoding can start at enough places
// are scanned as long as each byte is estimated to be decoded up to 3 more times (64 times in a
// full shuffle); otherwise they are spooled. The estimate is rough for records of a few bytes in
// the least memory: in a test over random datasets, orders and budgets, an epoch under auto decodes
// no more than 32 times the size of the shards, 256 times in a full shuffle. That holds for readers
// that keep step with each other.
//
// If scan is asked for where auto would spool, there is no such bound, but it makes progress: its
// readers look ahead as far as a quarter of the memory holds pieces, and each pass through a shard
// loads all of these (choose.Sizes.Lookahead).
//
// # Waiting
//
// A load that a reader waits for starts at once, in addition to whatever is read ahead. Loads of
// one piece are shared. A load continues if its reader stops waiting. The decoders of compressed
// shards pause when nothing more is needed from them, and continue from there; one that waits for
// storage leaves its processor to the others. Each keeps a processor for as long as its window is
// worth having in that processor's cache.
//
// Waits are counted in Options.Meter: by the load, the decoder that makes it, and what that decoder
// waits for.
//
// # Jumps
//
// Reading ahead adapts to the reader: nothing for one that samples, as much as suits the storage
// for one that reads sequentially. A seek forward within what was looked up, or a step back,
// changes nothing. When a reader seeks away or closes, those of its pending loads that have not
// begun are cancelled, unless another reader needs them too: loads that wait for a decoder or for
// space in the spool, and reads in the queues of storage and engine, which ask whether a read is
// still wanted before they begin it. A read that the kernel has begun completes, and is kept if
// there is room: a buffer is free on completion, never before.
//
// # Services
//
// If New got a window.Plan, the storage is told which pieces will be read before they are read
// ahead, and again when a reader has waited for 10 ms. So a service's engine requests first what is
// needed first. A piece is one read there, of exactly its records.
//
// # Errors
//
// If a load fails, its error is reported to Options.Note and to the readers that wait for it; the
// next reader that needs the piece starts a new load. A record whose own checksum is wrong fails
// alone, for as long as its piece is in memory. If the checksum of a compressed shard is wrong, all
// its records fail from then on, because earlier ones can't be trusted either. A reader that waits
// longer than Options.ReadTimeout gets options.ErrTimeout.
//
// # Goroutines and locks
//
// If records carry checksums, a scanner has one goroutine per processor that verifies them;
// decoders, the spool and the maps have their own. Close ends all of them. Locks are taken in this
// order, never the other way:
//
//	Reader.mu ──► Scanner.mu ──┬─► decode.Set or decode.Spool
//	                           └─► mapped.Maps
//
// The budget needs no lock. Decoders, the spool and the maps call back without holding their locks
// (decode.Owner, mapped.Owner), or return what is to be done (decode.News). They name loads by the
// numbers of their pieces: a piece that is on its way has one load (Scanner.loads). Between the
// moment one of them has taken up a load and the moment the scanner is called, the load can't be
// cancelled. A lookup of what is in memory takes no lock: it is an atomic load and a pin.
package scan
