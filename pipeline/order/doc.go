// Package order computes the order of the records of an epoch, and which worker gets each.
// ORDER.md, SELECTION.md and STREAMS.md define the result exactly. The package is pure: no I/O, no
// goroutines, no clock. Records are identified by their number in dataset order, counted before any
// split.
//
//	dataset ──split──► Part ──► chunks
//	chunks ──permute──► S ──cut──► groups ──cut──► lanes ──shuffle──► rota ──► G
//	G ──Done, Done, …──► G′ ──Deal──► worker 0, worker 1, …
//
// A Part is the set of records that a split selects. Inside an epoch everything is computed in
// ranks, the positions of records in the Part; cursors turn ranks into record numbers.
//
// An Epoch is the global order G, and a Cursor walks it. A View is the remainder of G after a
// number of resumes (Done), assigned to workers: it has the sequence of records of each worker's
// file.
//
// G is never stored. An Epoch keeps the permuted chunks, and the states of the reservoirs at
// regular positions; a short replay from there reaches any position. A Memory caches what views
// have computed. It is bounded for all views together, and what it drops is computed again.
package order

import "embed"

// Specification has the pages that define the results of this package: ORDER.md, SELECTION.md and
// STREAMS.md. "lsiofs help order" prints the first.
//
//go:embed ORDER.md SELECTION.md STREAMS.md
var Specification embed.FS
