// Package chunkmap determines the pieces of a dataset: runs of consecutive records of one shard,
// which are read at a time.
//
//	records   0 1 2 3 4 │ 5 6 7 │ 8 9 10 11 │ 12 …
//	pieces        0     │   1   │     2     │  3
//	shards        ──── 0 ───────│──────── 1 ────
//
// Table finds the piece of a record, Map where pieces are in their shards, and Layout which bytes a
// piece consists of. A Sequence is the order in which records are read, and a RecordError names one
// that can't be. All are immutable, and are used by all packages below read.
package chunkmap
