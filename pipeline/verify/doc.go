// Package verify checks a dataset and its order. Shards reads every byte once and
// reports what is wrong; Order proves by walking an order that it keeps its promises.
//
//	storage ─┬─► forward: reads in flight ─┬─► decoder, tee ─┬─► unpack.Scan ─► extents: as indexed?
//	         └─► streamed: one request ────┘                 └─► payloads: checksums of records
//
// Shards reads each shard from its first byte to its last. A shard at a service is one
// stream. Other shards are read with several large reads in flight; at a shard's end the
// next one is already being read. Memory bounds how many. The bytes are decoded if the
// shard is compressed, and go through the format's index pass. So every checksum of
// codec and format is checked, and every record is parsed again. The number, places,
// sizes and keys of the records are compared with the stored index. Some formats have
// record checksums that the index pass does not check (unpack.Verifier): there each
// record's bytes are collected and checked too. In other formats the inside of records
// is read, but not copied.
//
// Each problem is a Finding. It neither stops the pass nor keeps other shards from being
// read.
//
// Order reads no data: it proves claims by exhaustion over record numbers. For each
// claim it walks G once, and compares it position by position with the rules of
// pipeline/order, as its pages define them.
package verify
