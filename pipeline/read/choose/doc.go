// Package choose decides how the shards of a dataset are read: scanned piece by
// piece, gathered record by record, or decoded into a spool first. It is a pure
// function of sizes: how large shards, pieces and records are, how much memory there
// is, and in which order records are wanted. It reads nothing and knows no shard by
// name.
//
//	catalog ──┐
//	part    ──┼──► Sizes ──► Choose ──► Choice: scan, gather or spool, and why
//	settings ─┘      │
//	                 └─────► Limits: what each use of the memory may take of it
//
// At services, and with a disk cache, what is to be saved is requests (Sizes.ByRequests). What an
// order keeps of chunks that are read at the turn of their first record is then computed
// from its buffer and the records of a chunk (UnsentBytes for memory, OpenBytes for a disk), and
// Needs tells what an epoch takes.
//
// Sizes is filled by package size. What there is to know of each piece (its table)
// counts wherever memory is divided: of short records it takes more than they do.
package choose
