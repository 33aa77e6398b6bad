// Package stream turns the records of each worker into byte files: data, record IDs, offsets and,
// for crops, positions. Sizes are exact, and reads may start anywhere. The package is independent
// of FUSE.
//
//	view ──record numbers──► walker ──► fetch lends bytes ──► Reply: slices
//	catalog ──sizes──► layout: stream sizes, every 4096th offset ──► first record
//
// # Files
//
//	data     prologue │ record 0 │ record 1 │ … │ record n-1 │ epilogue
//	ids      16 bytes per record: shard part, ordinal, both big-endian
//	offsets  n+1 little-endian uint64: the start of each record in data, and
//	         the start of the epilogue
//	crops    npy array of int64, a row per record: where it was cut from
//
// Sizes are computed from the catalog and the order alone. One sweep over the view adds up each
// worker's bytes and notes where every 4096th record begins. The result is the view's layout, from
// which a read finds its first record. The memory for the layouts of all sets together is bounded.
// A dropped layout is loaded from the shelf or computed again.
//
// # Reads
//
// A Handle keeps a few walkers. A walker is a position in the stream from which a reader will
// probably continue, so that sequential reads need no search. The number of handles that keep
// walkers is bounded.
//
// A Reply is a vector of slices. How a record gets into it depends on where its bytes are:
//
//   - Long records are slices of the fetcher's memory, lent until Release.
//   - Runs of records that are contiguous in memory, in the order of the stream, are lent as one slice
//     (gather places all its records this way).
//   - Other short records are copied once, into a buffer.
//
// Mapped files can change or vanish, so their bytes are always copied. After the copy the files are
// checked, unless leases prove that they were not written. Lending mapped memory gained nothing in
// measurements (four readers, records of 12 and 64 KiB), and would be unsafe: a process can be
// suspended between its last check and the system call.
//
// While cores are idle, a goroutine copies the next blocks of up to 1 MiB ahead of a sequential
// reader, and reads are answered with slices of these. Records that are already contiguous need no
// copy ahead.
package stream
