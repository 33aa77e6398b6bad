// Package verify checks a dataset and its order. Shards reads every byte once and reports damage;
// Order proves, by walking an order, that it keeps its guarantees.
//
//	storage ─┬─► forward: reads in flight ─┬─► decoder, tee ─┬─► format.Scan ─► extents: as indexed?
//	         └─► streamed: one request ────┘                 └─► payloads: checksums of records
//
// Shards reads each shard from its first byte to its last. A shard at a service is one stream.
// Other shards are read with several large reads in flight; near the end of a shard the next one is
// already being read. Memory bounds the number of reads. The bytes are decoded if the shard is
// compressed, and pass through the format's index pass. So every checksum of codec and format is
// checked, and every record is parsed again. The number, positions, sizes and keys of the records
// are compared with the stored index. Some formats have record checksums that the index pass does
// not check (format.Verifier): for these, each record's bytes are checked as they pass. In other
// formats the contents of records are read, but not examined.
//
// Each problem is a Finding. It neither stops the pass nor keeps other shards from being read.
//
// Order reads no data: it proves claims by exhaustion over record numbers. For each claim it walks
// G once, and compares it position by position with the rules of pipeline/order, as its pages
// define them.
package verify
