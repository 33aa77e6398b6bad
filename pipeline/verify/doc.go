// Package verify reads every byte of a dataset once and says what is wrong with
// it, and proves an order by walking it.
//
// Shards goes through each shard from its first byte to its last, in large reads
// of which several are under way, at a shard's end those of the next one, and runs
// the format's index pass over what comes, decoded where the shard is compressed. So
// every checksum of codec and format is looked at, every record is parsed again, and
// what is found is held against the stored index: number, places, sizes and keys of
// the records. Where a format's records have checksums that the index pass does not
// look at (unpack.Verifier), each record's bytes are gathered and checked, too.
// Elsewhere the inside of records is read, and not copied.
//
//	storage ──► forward: reads under way ──► decoder, tee ──┬──► unpack.Scan ──► extents: as indexed?
//	                                                        └──► payloads: checksums of records
//
// What is wrong is a Finding; it does not stop the pass, nor does one shard keep
// others from being read.
//
// Order is a proof by exhaustion over record numbers: no data is read. G is
// walked once for each claim, and compared with ORDER.md's rules as they are
// written, position by position.
package verify
