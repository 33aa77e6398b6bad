// Package catalog knows what a dataset holds and where: its shards, their
// records' extents, the chunks that an order permutes. It is built once by a
// pass over the shards on all cores, stored, and opened again at once while the
// shards stay as they are. It knows nothing of orders.
//
// Records are numbered 0 … Records()-1 in dataset order (ORDER.md): shards by
// path, within a shard as they lie. A record number is the reference that all
// later stages hand around.
//
// # From files to a catalog
//
//	DATASET ─ package discover ─► shards and their format
//	  ─ reuse: the stored index, journals of interrupted builds ─► what is new
//	  ─ pass: unpack.Scan on all cores ─ index.Packer ─► index.Build
//	  ─ refuse what is no dataset ─ seal ─► index.Image ─► Catalog
//
// Package discover finds the shards, package index stores what is known of them, and
// neither knows of the other. This package joins them (open.go, build.go), reads the
// shards that are new or changed (pass.go, reading.go), and answers look-ups from the
// stored index (catalog.go, lookup.go, chunks.go).
//
// A shard is indexed again when its size, mtime, inode or ctime differs, as far as
// these last on its file system (package identity): where they don't they are 0.
//
// Shards are indexed in parallel, and of a shard of many zstd or lz4 frames those
// that follow are decoded ahead, in the room that decoders have together (windows,
// unpack.Ahead). A format sees the decoded bytes of a shard in order all the same,
// from one goroutine: so records may lie across frames, and the index does not
// depend on the number of cores, on memory or on timing.
//
// # Look-ups
//
// A look-up goes from the record number to the shard (a small table, then bisection),
// to a block of 128 records, to the record. Callers ask for many records at a time;
// those that follow each other cost the least. No look-up reads a shard, and the ones
// for records allocate nothing.
//
// # Beside the index
//
// Others may keep what they compute from a catalog in files beside its index, by name
// and ending: SaveBeside, LoadBeside. Identity says which index it was computed from.
package catalog
