// Package spool keeps compressed shards decoded, in a file on a local disk, for
// readers that jump about in them: each is decoded once, from front to back, and its
// pieces are then read from there.
//
//	Ask(load) ─┬─ There ────────────────────────────────► Read ─┬─► Compare
//	           └─ Waits: for room, or for its bytes             └─ Leave
//	                     │                                 ▲
//	Decoders ──► Summer ─┴─► File ──► News: it is there ───┘
//
//	File      │ shard 0 │ 3 │  free  │ 0 │ 7        │     each in one or more runs
//
// A shard is admitted when a load of it is asked for and there is room: room is taken
// from the shard that is least wanted. What was written can be read one buffer later;
// a load goes out as soon as its own bytes are there.
//
// # Losses
//
// A disk may lose what was written, long after it was: then the kernel shows zeros.
// So every block of 64 KiB or less has a checksum, taken from the decoded bytes before
// they are written (Summer), and what is read is compared with it (Compare) before
// anybody gets a byte of it. Blocks begin where pieces do (Pieces), and reads are made
// of whole blocks (Widener). A shard that does not come back as it was written leaves
// the spool (Lost); one that did so twice in ten minutes is avoided until these are over.
//
// The file has no name, so nothing is left of it however the process ends.
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
