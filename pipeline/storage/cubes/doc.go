// Package cubes is a storage that presents Zarr arrays as objects made of crops. Each cube (package
// listing) reads as one object, whose bytes are computed from the bricks (chunks) of its arrays.
//
//	object   │ header │ crop 0 │ crop 1 │ …                 (zarr.Cut)
//	              │
//	a range ──────┴─► records ─► fields ─► parts of bricks   submit.go
//	                                         │ one task per brick, shared by reads
//	                                         ▼
//	   decoded already? ── no ─► absent? fill ─ else ─► its place: shard index   indexes.go
//	         │                                             │ read                    work.go
//	         │                                             ▼
//	         └──────────────► copy to all crops ◄── decode ─┘                        work.go
//
// A range may begin and end anywhere; whole records are the common case.
//
// # Goroutines
//
// There is one worker per core. Workers decode and copy, and submit reads of stored bytes to the
// storage below without waiting for them. If a brick is in memory, the worker reads it itself.
// Submit only finds out which bricks are wanted. Close waits for all of them.
//
// # Memory
//
// The unit of decoding is the cell: usually a brick. If bricks are blosc buffers and crops need at
// most half of a brick's blocks (by the first header that is read), each block is a cell. Cells are
// cached up to Config.MemoryBytes: those that readers are going to want soonest (Storage.Expect)
// or, if nothing is known, the most recently used (cells). In addition each worker holds one brick,
// stored and decoded, and reads under way hold up to a quarter of MemoryBytes (1 to 64 MiB).
// Indexes of shards take up to an eighth of MemoryBytes, and at least one is kept. A brick larger
// than the cache is still read.
//
// The memory of tasks is reused when all tasks of a batch have ended (batch.go).
//
// # Long bricks
//
// If blocks are cells, a long brick is read in two steps (long.go): first its head, which holds the
// offsets of its blocks, and then the blocks that are wanted and not cached, with neighbours in one
// read. A brick is long from 64 KiB (stored) if it is in memory, and otherwise from 1 MiB, where a
// second wait costs less than reading all of it. If a part turns out to be wrong, the brick is read
// as a whole, which reports the error.
//
// # Changing objects
//
// Objects are read in the version that was listed, or not at all. A brick of an absent object
// consists of the fill value; unless Config.TrustAbsence is set, each time such a brick is made the
// object is checked to be still absent.
package cubes
