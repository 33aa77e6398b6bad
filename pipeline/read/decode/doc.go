// Package decode goes through compressed shards, on as many cores as there are, and
// leaves behind what is wanted of them.
//
// A Decoder goes through one shard once, forward, from an entry (the first byte of a
// member) on. A Set has all that stand somewhere, at work or paused:
//
//	Assign(load) ──► Set ──► Decoder   │ member │ member   │ member │
//	                          brings ──────► ▓▓ ····· ▓▓ · ▓ ┤ pauses here
//	                                         │   │       └ kept in passing: somebody
//	                                         │   │         will want it soon
//	                                         │   └ passed over
//	                                         └ a load: Work.Room gives its memory,
//	                                           Work.Came hands it on
//
// A load goes to the decoder that comes to its piece soonest, or to a new one. A
// decoder that has nothing to bring pauses, and goes on from there; the one that has
// been paused the longest is closed when there are too many, or they hold too much
// memory. One at work holds a core for a turn, and lets go of it while it waits for
// storage or for memory.
//
// # What it asks of its owner
//
// What a piece is, whether it is worth keeping, and where its bytes go is the owner's
// business: interface Work. Its methods are called without a lock of this package, so
// the owner may hold its own lock while it calls the Set. Locks are taken in the order
// owner → Set → budget, never the other way.
//
// Because the owner is asked without the lock, loads may come while it answers. So a
// decoder that asks about a piece refuses loads of pieces before it (they go to
// another), and looks at its loads again before it passes over the piece: one that was
// given to it meanwhile is brought. A load that a decoder has taken up is in no list
// any more, so TakeBack says no.
//
// # Memory
//
// How much a decoder holds is known when it has seen the head of a member. Then it
// waits until there is room; one may always exceed what there is, so one gets on.
// Config.Hold is told of all of it, so that others make room.
package decode
