// Package choose decides how the shards of a dataset are read: scanned piece by piece, gathered
// record by record, or decoded into a spool first. It is a pure function of sizes: how large
// shards, pieces and records are, how much memory there is, and in which order records are read. It
// reads nothing.
//
//	catalog ──┐              ┌──► Places: pieces, and where they are
//	part    ──┼──► Survey ───┼──► Held, Limits: what each use of the memory may take of it
//	settings ─┘              └──► Sizes ──► Choose ──► Choice: scan, gather or spool, and why
//
// For services, and with a disk cache, the cost to minimize is the number of requests
// (Sizes.ByRequests). How much of the chunks an order keeps, if each is read when its first record
// is due, is then computed from the shuffle buffer and the records per chunk (UnsentBytes for
// memory, OpenBytes for a disk). Needs returns what an epoch takes.
//
// A Survey fills in Sizes: it visits all shards and pieces of the index. Each piece has a table,
// which counts wherever memory is divided: tables of short records take more memory than the
// records.
package choose
