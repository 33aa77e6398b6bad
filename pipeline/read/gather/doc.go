// Package gather reads exactly the records that come next in a reader's sequence. It
// is one of the ways in which package read reads, for shards that are not compressed.
//
// A shuffled epoch wants a record here and a record there. Reading whole pieces of
// shards brings many records long before they are wanted, and where memory can't keep
// them they are read again. A gatherer knows the sequence, so it reads the wanted
// records alone, each once, many at a time, with those that lie close together in one
// read.
//
// # Use
//
//	g, err := gather.New(gather.Config{Index: …, Storage: …, Memory: …, …})
//	r := g.Open(sequence)            // as often as there are readers
//	err = r.Read(ctx, k, n, &loan)   // records k … k+n-1, or the first of them
//	…                                // use pinned.Records
//	pinned.Release()
//	r.Close()
//	g.Close()                        // waits for reads under way
//
// # What is in memory
//
//	Reader ──► run: batches one after the other, each a block of memory
//	             │   ▓▓▓▓ ▓▓▓▓ ▓▓▓▓ ░░░░ ░░░░ ░░░░ ░░░░ ░░░░
//	             │   kept ▲    ready └─── reads under way ──┘
//	             │        └ lent                            ↑ the next stretch
//	             ▼
//	           stretch ──► planner (package plan) ──► reads ──► storage
//
// A batch is consecutive records of a sequence in one block of memory, in the order in
// which they go out. So what is lent lies together.
//
// A run is a place at which a reader reads: batches one after the other. A file that is
// mapped is read at some places in turn, so a reader may have some runs.
//
// A stretch is some batches whose reads are planned together. The more records are
// looked at, the more of them lie close to each other. Reads of one record go straight
// to its place in its batch. Those of several records, or with gaps, go to a scratch
// block, and from there the records are copied to their places.
//
// # What is read ahead
//
// A reader that jumps gets what it asks for and no more: that is all that somebody who
// samples wants. One that reads on has a stretch read ahead, then one of twice the
// size, up to a bound. A jump, or Close, drops what lies ahead of the reader. Reads of
// it that have not begun are called off: storage asks before it begins one. What has
// begun comes to its end, as the kernel writes to its memory until then.
//
// # Services
//
// Where Config.Told is set, the storage is told what comes before it is read: records, or,
// if a disk cache keeps whole chunks, those. No more is read ahead than it was told of.
//
// # Memory
//
// All readers share one budget (Config.Memory), evenly. What is read ahead stays
// within it. A reader that waits gets memory in any case, so that nobody can wait in a
// circle: the others drop what they hold, those first that have not been read for
// long. So HeldBytes may exceed the budget by the batches that callers of Read wait
// for, and those that loans pin. A block is free again when no run has its batch, no
// loan pins it, nobody waits for it, and no read writes to it. Tables of up to 64 Ki
// records ahead come on top.
//
// # Errors
//
// A read that fails is noted (Config.Note). The records that it was of fail when they
// are asked for, unless they were read ahead: then they are read once more first. A
// record whose checksum is wrong stays so for as long as it is in memory. Whoever
// waits longer than Config.ReadTimeout gets pinned.ErrTimeout.
//
// # Goroutines and locks
//
// A gatherer has a goroutine for each processor, which copies and checks what has
// come; Close ends them. A reader's lock is for its runs, the gatherer's for the lists
// of what is free. Lending records that have come takes a lock a call, none a record,
// and allocates nothing.
package gather
