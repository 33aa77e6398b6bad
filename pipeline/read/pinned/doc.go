// Package pinned is what readers of records and those who call them share: the records
// that are lent (Records), the order they are asked for in (Sequence), and the error that
// says which of them could not be had (RecordError).
//
// Whoever wants records calls Read of some reader, uses their bytes where they lie,
// and calls Release:
//
//	Read(ctx, k, n, &l) ──► l.Records: bytes in the reader's memory
//	                            │ pinned: nobody gives them back meanwhile
//	l.Release()         ◄───────┘ as soon as the bytes have been copied or sent
//
// A Records is made once and used for one call after the other, so that lending
// allocates nothing. Most records lie in memory that the reader has filled, and stay
// what they are. Some lie in mapped files, which others may write to: see Records.Mapped.
package pinned
