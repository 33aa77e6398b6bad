// Package catalog indexes a dataset: it finds the shards, where each record begins and ends, and
// the chunks that a shuffle permutes. The first time, it reads through the shards. It stores the
// result, and later opens that at once as long as the shards have not changed. It is independent of
// the order in which records are read.
//
// Records are numbered 0 … Records()-1 in dataset order (pipeline/order/SELECTION.md): shards by
// path, and within a shard in file order. Later stages refer to a record by its number.
//
// # From files to a catalog
//
//	DATASET ─ package discover ─► shards and their format
//	  ─ reuse: the stored index, journals of interrupted builds ─► what is new
//	  ─ pass: format.Scan, several shards at a time ─ index.Packer ─► index.Build
//	  ─ refuse invalid datasets ─ seal ─► index.Image ─► Catalog
//
// Package discover finds the shards. Package index stores their index. They are independent of each
// other. This package connects them (open.go), reads the shards that are new or changed (pass.go,
// reading.go), and answers look-ups from the stored index (catalog.go).
//
// A shard is indexed again when its size, mtime, inode or ctime differs. A time or number that is
// not stable on its file system (package filesystem) is 0 and not compared.
//
// # How shards are read
//
// The storage profile determines how many shards are read at a time, and how. A local shard is read
// in large portions, or only its headers are read. A shard in a remote storage service is read with
// one streaming request (storage.NewStream): short gaps between headers are read and dropped, and
// after a long gap the next header is requested separately. A .tar may hold samples or games. In a
// remote service two of them are opened first to find out which, and the others as they are
// indexed; if one differs from what was assumed, all are opened, and the pass begins again.
//
// A format always reads the decoded bytes of a shard in order, from one goroutine. So records may
// span compressed frames, and the index does not depend on the number of cores, on memory, on the
// storage or on timing.
//
// Memory has three parts, and Config.MemoryBytes bounds each:
//
//   - decoders, including frames decoded ahead (DecoderRoom)
//   - buffers: fewer shards are read at a time (ShardsAtATime)
//   - index entries of the records of unfinished shards: shards begin later (admission), and a
//     shard that takes more by itself is refused
//
// Buffers for as many shards as there are cores are always allowed.
//
// # Datasets that grow
//
// A LiveIndex follows a directory in which files come and go. It indexes each file once, after its
// owner has reported that the file is no longer being written, and makes any set of the shards a
// Catalog (Seal): the same Catalog that Open returns for a directory with just these files.
//
//	files ─ Index: known? (live_known.go) ─ of which format? ─ pass (live_pass.go)
//	  ─► whole: a journal, Shards    ─► not whole, or of another kind: Waiting (live_waiting.go)
//	some Shards ─ Text (snapshots.go) ─► text, whose SHA-256 is the fingerprint
//	text ─ Seal (snapshots.go) ─► an index of its own ─► Catalog
//
// # Look-ups
//
// A look-up goes from the record number to the shard (a small table, then bisection), to a block of
// 128 records, to the record. Callers ask for many records at a time; consecutive records cost the
// least. No look-up reads a shard. Look-ups of records do not allocate.
//
// # Next to the index
//
// Other packages may keep files next to the index, by name and ending: SaveBeside and LoadBeside.
// Identity identifies the index from which a file was computed.
package catalog
