// Package cubes is storage whose objects are the crops of Zarr arrays. Each cube (package
// listing) reads as one object, whose bytes are computed from the bricks of its arrays.
//
//	object   │ header │ crop 0 │ crop 1 │ …                 (zarr.Cut)
//	              │
//	a range ──────┴─► records ─► fields ─► parts of bricks   submit.go
//	                                         │ one task a brick, for all that was submitted
//	                                         ▼
//	   decoded already? ── no ─► absent? fill ─ else ─► where it lies: shard index   indexes.go
//	         │                                             │ read                    tasks.go
//	         │                                             ▼
//	         └──────────────► copy to all crops ◄── decode ─┘                        work.go
//
// A range may begin and end anywhere. Whole records are the common case.
//
// # Goroutines
//
// There is a worker a core. Workers decode and copy, and hand reads of what is stored to the
// storage below, without waiting for them. A brick that is in memory is read by the worker
// itself. Submit does nothing but find out which bricks are wanted. Close waits for all.
//
// # Memory
//
// What is decoded at once is a cell: a brick or, of an array of which crops have few blocks of a brick
// that is a buffer of blosc (at most half, by the first header that is read), one block. Cells stay in
// memory up to Config.MemoryBytes: what readers are going to want soonest (Storage.Expect), or where
// nothing is known what was used last (cells). Beside it a worker holds a brick, as it is stored and
// decoded, and so do reads under way, up to a quarter of MemoryBytes (1 to 64 MiB). Indexes of shards
// take up to an eighth of MemoryBytes, and at least one is kept. A brick larger than that is read all
// the same.
//
// Tasks lie in memory that is used again when all of a batch have ended (batch.go).
//
// # Long bricks
//
// Of an array whose blocks are cells, the head of a brick is read first, which says where its blocks
// lie, and then those that are wanted and not kept, near ones together (long.go): where it is in memory
// from 64 KiB on, as it is stored, else from 1 MiB on, where a second wait costs less than reading all.
// What is wrong with a part is said by reading the brick as a whole.
//
// # What changes
//
// Objects are read in the version that was listed, or not at all. A brick of an object that was
// absent consists of the fill value; that the object is still absent is looked at whenever the
// brick is made.
package cubes
