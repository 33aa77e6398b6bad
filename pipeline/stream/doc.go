// Package stream turns the records of each worker into three byte files: data, record
// IDs and offsets. Sizes are exact, and reads may start anywhere. It knows nothing of
// FUSE.
//
//	view ──record numbers──► walker ──► fetch lends bytes ──► Reply: slices
//	catalog ──sizes──► layout: stream sizes, every 4096th offset ──► first record
//
// # Files
//
//	data     prologue │ record 0 │ record 1 │ … │ record n-1 │ epilogue
//	ids      16 bytes a record: shard part, ordinal, both big-endian
//	offsets  n+1 little-endian uint64: where each record begins in data, and
//	         where the epilogue does
//
// Sizes come from the catalog and the order alone. One sweep over the view adds up each
// worker's bytes and notes where every 4096th record begins. The result is the view's
// layout, and a read finds its first record from it. The layouts in memory are bounded
// for all sets together. One that was dropped is loaded from the shelf, or computed
// again.
//
// # Reads
//
// A Handle keeps a few walkers. A walker is a place in the stream where a reader will
// probably go on, so that sequential reads need no search. The number of handles that
// keep walkers is bounded.
//
// A Reply is a vector of slices. Where a record lies decides how it gets into one:
//
//   - Long records are slices of the fetcher's memory, lent until Release.
//   - Runs of records that lie there in the order of the stream are lent as one slice
//     (gather puts all its records that way).
//   - Other short records are copied once, into a buffer.
//
// Mapped files can change or vanish, so bytes in them are always copied. After the copy
// the files are checked, unless leases show that nobody can have written. Lending mapped
// memory was measured to win nothing (four readers, records of 12 and 64 KiB). And it
// would not be safe: a process can stand still between its last check and the system
// call.
//
// A sequential reader is read ahead of while there are cores for it: a goroutine copies
// the handle's next blocks, of up to 1 MiB each, and reads are answered with slices of
// these. Records that already lie together need no copy ahead.
package stream
