// Package decode decodes compressed shards on all cores and stores the pieces that are needed.
//
// A Decoder reads one shard once, forward, starting at an entry: the first byte of a member, or a
// point inside one. A Set holds all open decoders, both running and paused:
//
//	Assign(load) ──► Set ──► Decoder   │ member │ member   │ member │
//	                          brings ──────► ▓▓ ····· ▓▓ · ▓ ┤ pauses here
//	                                         │   │       └ kept in passing: it will
//	                                         │   │         be needed soon
//	                                         │   └ skipped
//	                                         └ a load: Work.Room gives its memory,
//	                                           Work.Came hands it on
//
// A load is assigned to the decoder that will reach its piece first, or to a new one. A decoder
// without loads pauses and later resumes from there. When there are too many decoders or they hold
// too much memory, the one that has been paused the longest is closed. A running decoder holds a
// core for one turn, and releases it while it waits for storage or memory.
//
// # The owner's part
//
// The owner decides what a piece is, whether it is worth keeping, and where its bytes are stored,
// through the interface Work. Its methods are called without holding a lock of this package, so
// the owner may hold its own lock while it calls the Set. Locks are taken in the order
// owner → Set → budget, never the reverse.
//
// Because the owner is called without the lock, new loads may arrive during the call. A decoder
// that is asking about a piece therefore refuses loads of earlier pieces (they go to another
// decoder), and checks its loads again before it skips the piece, so that a load assigned in the
// meantime is still decoded. A load that a decoder has started on is no longer in its list, so
// TakeBack returns false for it.
//
// # Memory
//
// The memory that a decoder needs is known once it has read the header of a member. It then waits
// until there is room. One decoder may always exceed the limit, so that at least one makes
// progress. Every change is reported to the budget, so that other users of memory make room.
package decode
