// Package chunkmap says what the pieces of a dataset are: runs of consecutive records of
// one shard, which is what is read at a time.
//
//	records   0 1 2 3 4 │ 5 6 7 │ 8 9 10 11 │ 12 …
//	pieces        0     │   1   │     2     │  3
//	shards        ──── 0 ───────│──────── 1 ────
//
// Table finds the piece of a record; Map says where pieces lie in their shards, and
// Layout which bytes one is made of. All are immutable, and all packages below fetch use them.
package chunkmap
