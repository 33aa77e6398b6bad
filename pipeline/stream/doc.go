// Package stream makes byte files of a view's records: worker w's data, IDs and
// offsets, with exact sizes and reads at any place. It knows nothing of FUSE.
//
// # Files
//
//	data     prologue │ record 0 │ record 1 │ … │ record n-1 │ epilogue
//	ids      16 bytes a record: shard part, ordinal, both big-endian
//	offsets  n+1 little-endian uint64: where each record begins in data, and
//	         where the epilogue does
//
// Sizes come from the catalog and the order alone. One sweep over the view, the
// layout, adds up each worker's bytes and notes where every 4096th record
// begins; a read finds its first record from there. The layouts in memory are
// bounded for all sets together: one that is dropped comes from the shelf, or is
// computed again.
//
// # Reads
//
// A Handle parks a few walkers, places in the stream where its readers will
// probably go on, so that reading on costs no search; a bounded number of handles
// do. A Reply is a vector: long
// records are slices of the fetcher's memory, on loan until Release, and so are
// runs of records that lie there one behind the other as they go out (gather: one
// slice has them all); other short ones are copied once into a buffer.
//
// What lies in mapped files may go away, or change: it is always copied, and then the
// files are looked at, but where leases show that nobody can have written. Handing it
// on as it lies was measured to win nothing (four readers, records of 12 and 64 KiB),
// and a process that stands still between its last look and the system call could not
// be certain of it.
//
// A reader that reads on is read ahead of while there are cores for it: its
// handle has the next blocks, of up to 1 MiB, copied together by a goroutine, and
// its reads are answered with slices of these. Where records lie together already
// there is nothing to copy ahead.
package stream
