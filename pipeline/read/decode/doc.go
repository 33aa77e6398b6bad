// Package decode brings pieces of compressed shards to memory. A Set has the decoders: each reads one
// shard forward and stores the pieces that are needed. A Spool, if there is one, has a Set decode
// each shard once to a shelf of the disk cache (package diskcache), and reads the pieces from there.
//
// # From the first wish for a piece to its end
//
// The owner (scan.Scanner) makes a Load for a piece that a reader needs and memory lacks, and keeps
// it in its table of loads until it has ended. It decides which way the load takes:
//
//	owner                      this package
//	─────                      ────────────
//	Load ──┬─ no spool ──────► Set.Assign ──────────► Decoder.work: loads, by place in the shard
//	       │                       ▲                        │ has reached the piece
//	       │                       │                  Owner.Room    the owner gives the memory
//	       │                 News.Without                   │ decodes to it
//	       │                       │                  Owner.Came    the owner publishes the piece
//	       │                       │
//	       └─ the shard is ──► Spool.Ask ─┬─ Refused ───────────────── there is no room to read ahead
//	          spooled                     ├─ Waits: its shard has to be admitted and decoded
//	                                      │    Set.Through ──► Place ──► News.There ─┐
//	                                      └─ There: its bytes are in a Place ────────┤
//	                                                                                 ▼
//	                   the owner gives the memory, then Spool.Read; done(nil): publishes the piece
//	                                                                done(error): Spool.Lost
//
//	Owner.Failed, TakeBack, Close: it ends without
//
// Who has what:
//
//   - A load belongs to its owner from beginning to end. This package returns it exactly once: by
//     Came, Failed or News, or by the return value of Room (false: the owner has ended it), TakeBack
//     (true), Lost or Close. The owner has one load of each piece at a time, so the piece's number is
//     enough to find it.
//   - A piece's memory is the owner's. It allocates it as late as possible: when a decoder has
//     reached the piece (Room), when a decoder passes a piece that will be needed soon (Passing), or
//     when the bytes can be read from the spool. If there is none for a load that is read ahead, the
//     load ends; for one that a reader waits for there always is.
//   - A published piece is the owner's alone, until it evicts it (scan/cache.go). If the piece is
//     needed again it gets a new Load: a shard in the spool is not decoded for that, another one
//     is, from the entry before the piece.
//   - Memory of decoders and of the spool's tables belongs to this package. It is charged to the
//     budget, and Owner.Shrink makes the owner give way.
//   - A shard's room on the shelf belongs to its Place.
//
// # Decoders
//
//	│ member │ member   │ member │
//	  brings ──────► ▓▓ ····· ▓▓ · ▓ ┤ pauses here
//	                 │   │       └ Passing: it will be needed soon
//	                 │   └ skipped
//	                 └ a load: Room, Came
//
// A decoder starts at an entry: the first byte of a member, or a point inside one. A load is assigned
// to the decoder that will reach its piece first, or to a new one. A decoder without loads pauses and
// later resumes from there. When there are too many decoders or they hold too much memory, the one
// that has been paused the longest is closed. Before the owner drops pieces that are still needed, it
// closes paused decoders that no reader will need soon, and those that hold more bytes than would be
// decoded to open others in their place (CloseCheap). A running decoder holds a core for one turn,
// and releases it while it waits for storage or memory.
//
// The memory that a decoder needs is known once it has read the header of a member. It then waits
// until there is room. One decoder may always exceed the limit, so that at least one makes
// progress. Every change is reported to the budget, so that other users of memory make room.
//
// # Shards in the spool
//
// A shard is admitted when one of its loads is asked for and there is room. It gets a Place, waits in
// a queue, and is decoded from front to back. Written bytes can be read one buffer later; a load is
// passed on as soon as its own bytes are there. If the disk cache has the shard already, or another
// process decodes it, it is not decoded here.
//
// Room is taken from the shard that is needed least: one whose records have all been delivered
// (Place.GoneOut counts), else one that no reader needs soon, else, if a reader waits, the oldest.
// Its room is free when it is neither read nor written any more, and only then it is admitted again.
// If a reader waits and there is no room, the load waits for that.
//
// The shelf verifies what is read from it. A shard that reads back differently from what was
// written is removed from the spool (Lost). After two losses within ten minutes, the shard is read
// without the spool for ten minutes: its loads go to decoders.
//
// # Locks
//
// First the owner's lock, then that of a Spool or a Set, never the reverse, and never both of these.
// The budget needs none. So the owner may hold its lock while it calls a Spool or a Set, and both
// call the owner without their locks (except Owner.WantedSoon, which takes none). What a Spool finds
// out while it is called, it returns as News.
//
// Because the owner is called without the lock, new loads may arrive during the call. A decoder
// that is asking about a piece therefore refuses loads of earlier pieces (they go to another
// decoder), and checks its loads again before it skips the piece, so that a load assigned in the
// meantime is still decoded. Between the moment a load has left the lists of this package and the
// moment the owner is called, TakeBack returns false for it. Its Place stays meanwhile, until Read
// has ended or Leave is called.
package decode
