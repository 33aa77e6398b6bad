// Package budget is the memory in which records are kept: what is charged to the limit set by
// --memory, and which requests may get more of it.
//
// Bytes of records are outside of the Go heap (Memory). They are pinned (Pins) while they are in
// use, so that they are not freed meanwhile. Urgency determines what may be done to find memory:
// reading ahead gets none beyond the budget, but a reader that waits always gets some, so readers
// can't wait for each other in a circle. Blocks are memory of one size, for readers that gather; a
// scan uses segments.
//
// A Records is what readers return: the bytes of records, in place.
//
//	Read(ctx, k, n, &l) ──► l.Records: bytes in the reader's memory
//	                            │ pinned: not freed or reused meanwhile
//	l.Release()         ◄───────┘ as soon as the bytes have been copied or sent
//
// It is made once and reused for each call, so that reading allocates nothing. Most records are in
// memory that the reader has filled, and don't change. Some are in mapped files, which other
// programs may write to: see Records.Mapped.
//
// Shared is one budget of several fetchers. Each of them has a Share, which shrinks and grows as
// fetchers are opened, read, and left idle.
package budget
