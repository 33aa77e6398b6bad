// Package gather reads exactly the records that come next in a reader's sequence. It is one of the
// ways in which package read reads, for uncompressed shards.
//
// A shuffled epoch needs a record here and a record there. Reading whole pieces of shards reads
// many records long before they are needed, and those that memory can't keep are read again. A
// gatherer knows the sequence, so it reads only the needed records, each once, many at a time, with
// adjacent ones in one read.
//
// # Use
//
//	g, err := gather.New(&options, plan)
//	r := g.Open(sequence)              // one per reader
//	err = r.Read(ctx, k, n, &records)  // records k … k+n-1, or the first of them
//	…                                  // use records, a budget.Records
//	records.Release()
//	r.Close()
//	g.Close()                          // waits for reads in progress
//
// # What is in memory
//
//	Reader ──► run: batches one after the other, each a block of memory
//	             │   ▓▓▓▓ ▓▓▓▓ ▓▓▓▓ ░░░░ ░░░░ ░░░░ ░░░░ ░░░░
//	             │   kept ▲    ready └── reads in progress ─┘
//	             │        └ pinned                          ↑ the next stretch
//	             ▼
//	           stretch ──► planner (package plan) ──► reads ──► storage
//
// A batch is consecutive records of a sequence in one block of memory, in the order in which they
// are delivered. So records that are returned together are adjacent in memory.
//
// A run is a place at which a reader reads: batches one after the other. A mapped file is read at
// several places alternately, so a reader may have several runs.
//
// A stretch is several batches whose reads are planned together. The more records are planned
// together, the more of them are close to each other. Reads of one record go directly to its place
// in its batch. Those of several records, or with gaps, go to a scratch block, from which the
// records are copied to their places.
//
// # What is read ahead
//
// A reader that jumps gets what it asks for and no more, which is all that a sampling reader needs.
// When it reads on, a stretch is read ahead, then one of twice the size, up to a limit. A stretch
// waits for the memory of all of it, so its size depends on --memory and not on when reads end or
// replies are released; nor does it on how much a call asks for. If records are computed from
// larger pieces (window.Plan.Exact), there are at most two stretches at a time, of up to half of the
// reader's memory: each piece is then computed for many records, as many for a slow reader as for a
// fast one. A jump, or
// Close, drops what is ahead of the reader, and cancels reads of it that have not begun: storage
// asks before it begins a read. A read that has begun completes, because the kernel writes to its
// memory until then.
//
// # Hints
//
// If New got a window.Plan, the storage is told what will be read: records or, if a disk cache
// keeps whole chunks, chunks. Reading ahead does not go beyond what it was told. A storage that
// computes records from larger pieces (window.Plan.Exact) is told what will be submitted, further
// ahead than is read.
//
// # Memory
//
// All readers share one budget (Options.MemoryBytes), evenly. Reading ahead stays within it. A
// reader that waits always gets memory, so readers can't wait for each other in a circle: the
// others drop what they hold, beginning with those that have been idle longest. So HeldBytes may
// exceed the budget by the batches that callers of Read wait for, and the pinned ones. A block is
// free again when no run has its batch, it is not pinned, no reader waits for it, and no read
// writes to it. Tables of up to 64 Ki records ahead come on top.
//
// # Errors
//
// A read that fails is noted (Options.Note). Its records fail when they are asked for; if they had
// been read ahead, they are read once more first. A record whose checksum is wrong fails for as
// long as it is in memory. A reader that waits longer than Options.ReadTimeout gets
// options.ErrTimeout.
//
// # Goroutines and locks
//
// A gatherer has one goroutine per processor, which copies and verifies what has arrived; Close
// ends them. A reader's lock guards its runs, the gatherer's the free lists. Returning records that
// have arrived takes one lock per call and none per record, and allocates nothing.
package gather
