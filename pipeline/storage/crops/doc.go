// Package crops is a storage that presents Zarr arrays as objects made of crops. Each cube (package
// listing) reads as one object, whose bytes are computed from the chunks of its arrays.
//
//	object   │ header │ crop 0 │ crop 1 │ …                 (zarr.Cut)
//	              │
//	a range ──────┴─► records ─► fields ─► parts of chunks   submit.go
//	                                         │ one task per chunk, shared by reads
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
// storage below without waiting for them. If a chunk is in memory, the worker reads it itself.
// Submit only finds out which chunks are wanted. Close waits for all of them.
//
// # Memory
//
// The unit of decoding is the cell: usually a chunk. If chunks are blosc buffers and crops need at
// most half of a chunk's blocks (by the first header that is read), each block is a cell. Cells are
// cached up to Config.MemoryBytes: those that readers are going to want soonest (Storage.Want) or,
// if nothing is known, the most recently used (package blockcache). A chunk that no reader is going
// to want is decoded into the worker's own buffer, which stays in the CPU cache. In addition each
// worker holds one chunk, stored and decoded, and reads under way hold up to a quarter of
// MemoryBytes (1 to 64 MiB). Indexes of shards take up to an eighth of MemoryBytes, and at least
// one is kept. A chunk larger than the cache is still read.
//
// The memory of tasks is reused when all tasks of a batch have ended (submit.go).
//
// # Dry runs
//
// A Dry does the same with as much memory, but reads no data (dry.go): forecasts count with it what
// this package would read and decode.
//
// # Long chunks
//
// If blocks are cells, a long chunk is read in two steps (blocks.go): first its head, which holds
// the offsets of its blocks, and then the blocks that are wanted and not cached, with neighbours in
// one read. A chunk is long from 64 KiB (stored) if it is in memory, and otherwise from 1 MiB,
// where a second wait costs less than reading all of it. If a part turns out to be wrong, the chunk
// is read as a whole, which reports the error.
//
// # Changing objects
//
// Objects are read in the version that was listed, or not at all. A chunk of an absent object
// consists of the fill value; unless Config.TrustAbsence is set, each time such a chunk is made the
// object is checked to be still absent.
package crops
