// Package window looks ahead in the order for each reader, and determines which pieces will be
// needed before a record of them is asked for.
//
//	Reader (one pass over a sequence)
//	   │ at each call of Read: records k … k+n-1
//	   ├──► windows: the places that it reads at. What follows one of them is
//	   │            loaded (Loader.Start), more of it while the reader reads on
//	   └──► Wanted: for each piece, how many records readers will need soon.
//	                A decoder that passes through a shard stores what is wanted
//
// If the storage takes hints, there is also a Lookahead for each reader:
//
//	Lookahead ──► goes on through the sequence, up to --lookahead bytes
//	   │        names each chunk at its first record; one bit per chunk
//	   └──► Hints.Want: the chunks to come, soonest first, with how much of the stream
//	        is before each; again when a quarter of it has been read
//
// What has not been planned is not read ahead: a service treats such reads as urgent. When a reader
// has waited for long, its plan is sent again (Promote). When it jumps or closes, its plan is
// withdrawn. A chunk is reported as passed when its first record has been delivered, because the
// chunk is in memory then; if records are read from a disk cache (Plan.Keeps), when its last record
// has. Readers that share an epoch count the records of a chunk together. A Lookahead holds at most
// 16 Ki blocks, less if there are many readers, and reads the clock once per plan.
//
// A storage that computes reads from larger pieces (Plan.Exact) gets the records instead, in the
// order in which they will be submitted: it keeps the pieces that are needed again soonest.
//
// The package knows no bytes, no memory and no shards: a Loader knows whether a record is in
// memory, and how to load its piece. Its result is the order of what comes next, by which
// everything below can plan.
//
// # Locks
//
// A Reader has one owner at a time: calls are made with the lock of the scan reader that it belongs
// to, which is taken before that of the Loader. Wanted is atomic. A Lookahead calls Hints with
// that lock held.
package window
