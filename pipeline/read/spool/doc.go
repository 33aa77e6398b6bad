// Package spool decodes compressed shards to a local disk, for orders that jump about in them: each
// shard is decoded once, from front to back, onto a shelf of the disk cache (package diskcache), and
// its pieces are then read from there.
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
// The spool has a lock of its own. Its methods may be called with the owner's lock held; they never
// call the owner, but return News. Its goroutines call Owner.News without the spool's lock. So locks
// are taken in the order owner → spool → budget, never the reverse. After the spool has removed a
// load from its lists, and before the owner has got the News, the load is in no list: TakeBack
// returns false, as it does for a load whose reads have begun. The load's place stays meanwhile: it
// counts as being read until Read has ended or Leave is called.
//
// Owner.WantedSoon is the exception: it is called with the spool's lock held, and takes no lock.
package spool
