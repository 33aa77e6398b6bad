// Package catalog says what a dataset holds and where: its shards, where each record
// begins and ends, and the chunks that a shuffle permutes. The first time, it reads
// through the shards. It stores what it found, and opens that at once later, as long as
// the shards have not changed. It knows nothing of orders.
//
// Records are numbered 0 … Records()-1 in dataset order (pipeline/order/SELECTION.md):
// shards by path, and within a shard as they lie there. Later stages name a record by its
// number.
//
// # From files to a catalog
//
//	DATASET ─ package discover ─► shards and their format
//	  ─ reuse: the stored index, journals of interrupted builds ─► what is new
//	  ─ pass: unpack.Scan, several shards at a time ─ index.Packer ─► index.Build
//	  ─ refuse what is no dataset ─ seal ─► index.Image ─► Catalog
//
// Package discover finds the shards. Package index stores what is known of them. Neither
// knows of the other. This package connects them (open.go, build.go), reads the shards
// that are new or changed (pass.go, reading.go), and answers look-ups from the stored
// index (catalog.go, lookup.go, chunks.go).
//
// A shard is indexed again when its size, mtime, inode or ctime differs. A time or number
// that does not last on its file system (package identity) is 0 and not compared.
//
// # How shards are read
//
// The profile of the storage says how many shards are read at a time, and how. A local
// shard is read in large portions, or its headers alone. A shard at a service is one
// request, a stream (package sequential): short gaps between headers are read and
// dropped, and after a long one the next header is requested by itself. A .tar may hold
// samples or games. At a service two of them are opened first to tell, and the others as
// they are read; if one is not what was assumed, all are opened, and the pass begins again.
//
// A format always sees the decoded bytes of a shard in order, from one goroutine. So
// records may lie across compressed frames, and the index does not depend on the number
// of cores, on memory, on the storage or on timing.
//
// Memory has three parts, and Config.MemoryBytes bounds each:
//
//   - decoders, also of frames that are decoded ahead (package decoding)
//   - buffers: fewer shards are read at a time (ShardsAtATime)
//   - what is known of the records of unfinished shards: shards begin later (admission), and one
//     that takes more by itself is refused
//
// Buffers for as many shards as there are cores are always there.
//
// # Datasets that grow
//
// A Stock follows a directory in which files come and go. It indexes each file once, when
// it is told that nobody writes it any more, and makes any set of the shards a Catalog
// (Seal): the same one that Open gives of a directory with just these files.
//
//	files ─ Index: known? (stock_known) ─ of which format? (stock_judge) ─ pass (stock_index)
//	  ─► whole: a journal, Shards    ─► not whole, or of another kind: Waiting (stock_waiting)
//	some Shards ─ Text (stock_text) ─► text, whose SHA-256 is the fingerprint
//	text ─ Seal (stock_seal) ─► an index of its own ─► Catalog
//
// # Look-ups
//
// A look-up goes from the record number to the shard (a small table, then bisection), to
// a block of 128 records, to the record. Callers ask for many records at a time; records
// that follow each other cost the least. No look-up reads a shard. Look-ups of records
// allocate nothing.
//
// # Beside the index
//
// Other packages may keep files beside the index, by name and ending: SaveBeside and
// LoadBeside. Identity says which index such a file was computed from.
package catalog
