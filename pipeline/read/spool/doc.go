// Package spool schedules the decoding of compressed shards for readers that jump about in
// them: each shard is decoded once, from front to back, onto a shelf of the disk cache
// (package diskcache), and its pieces are then read from there.
//
//	Ask(load) ─┬─ There ────────────────────────────────► Read ─► Leave
//	           └─ Waits: for room, or for its bytes
//	                     │                                 ▲
//	Decoders ────────────┴─► Shelf ─► News: it is there ───┘
//
// A shard is admitted when one of its loads is asked for and there is room, which is taken from the
// shard that is needed least. Written bytes can be read one buffer later; a load is passed on as
// soon as its own bytes are there.
//
// # Losses
//
// The shelf verifies what is read from it. A shard that reads back differently from what was
// written is removed from the spool (Lost). After two losses within ten minutes, the shard is read
// without the spool for ten minutes.
//
// # Who calls whom
//
// The spool has a lock of its own. Its methods may be called with the owner's lock
// held; they never call the owner back, but return News where there are some. Its
// goroutines tell the owner (Owner.News) without the spool's lock. So locks are taken in
// the order owner → spool → budget, never the other way. Between the moment when the
// spool has taken a load off its lists and the moment when the owner is told, the load
// is in nobody's list: TakeBack says no, as it does for one whose reads have begun. Its
// place stays meanwhile: it counts as being read until Read has ended, or Leave.
//
// Owner.WantedSoon alone is asked with the lock held, and takes none.
package spool
