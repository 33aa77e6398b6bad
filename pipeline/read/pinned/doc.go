// Package pinned is what readers of records and their callers share: pinned records (Records), the
// order in which records are read (Sequence), and the error that names a record that can't be read
// (RecordError).
//
// A caller calls Read of a reader, uses the records' bytes in place, and calls Release:
//
//	Read(ctx, k, n, &l) ──► l.Records: bytes in the reader's memory
//	                            │ pinned: not freed or reused meanwhile
//	l.Release()         ◄───────┘ as soon as the bytes have been copied or sent
//
// A Records is made once and reused for each call, so that reading allocates nothing. Most records
// are in memory that the reader has filled, and don't change. Some are in mapped files, which other
// programs may write to: see Records.Mapped.
package pinned
