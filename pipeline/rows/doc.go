// Package rows presents rows of typed columns as records: as lines of JSON, as tar samples, as rows
// of an .npy array, or as windows of tokens. It is pure: it has no I/O and no goroutines. Packages
// that read Parquet, MDS or Arrow files decode columns into vectors, and this package does the rest.
//
//	flags ─► ParseColumns ─┐
//	file  ─► Schema ───────┴► Resolve ─► []Column ─► NewJSONL, NewTar, NewNPY, NewPacker
//	                                        │              │
//	                                        ▼              ▼
//	file  ─► decoder (a Cursor) ─► Batch of Vectors ─► Append(dst, batch, row, ordinal) ─► record
//
// # Rows, columns and types
//
// A row has a value for each column. A Type is a bool, int, float, string, binary, decimal, date,
// time, timestamp, list, map or struct; each value may be null. Resolve selects the columns that
// are presented: a Column is a column of the file, or a field of its structs. Decoders decode
// exactly these.
//
// # Vectors
//
// A decoder passes its values a batch at a time. A Batch has some consecutive rows; for each column
// it has a Vector, and the number of the vector's slot that belongs to the batch's first row. So
// columns whose pages have different numbers of rows need no copying: a batch ends where the first
// of the columns' pages ends, and the other columns continue in the same vector with a larger First.
//
// A vector maps slots to values, and values to bytes or to slots of its children:
//
//	slot ── Index ──► value ──┬─► Bytes[value·Width:]                  numbers, fixed-size bytes
//	 i      -1: null          ├─► bit value of Bytes                   bool
//	        nil: value = i    ├─► Bytes[Spans[value]]                  strings, binary
//	                          ├─► slot value of each child             struct
//	                          └─► slots Offsets[value]…Offsets[value+1] of the children   list, map
//
// This fits what the files contain. A Parquet dictionary page is Bytes and Spans, and its indexes
// become Index. A plain page with nulls has an Index that counts the values; one without nulls has
// none, and a fixed-width page is used as it is. Repetition levels become Offsets, definition levels
// become the Index of the level where a value ends: elements of an empty or null list, and fields of
// a struct that is null in the Index, take no slots or null ones, as the decoder prefers. Arrow's
// layout is the same but for its validity bitmaps, which become Index.
//
// Lists, maps and structs of any depth are thus a few flat arrays. Presenting a row allocates
// nothing.
//
// # Ownership
//
// A batch and all that it refers to belong to its Cursor and are valid until the next call of Next.
// Presenters only read them, retain nothing, and append copies. Presenters trust the vectors: an
// index or offset outside of its array is an error of the decoder and panics here. Decoders check
// what a file contains, once a page; Batch.Check does it slowly, for their tests.
//
// # Errors
//
// A *DamageError is damage of one row, for example a string that is not UTF-8. A *RefusedError is a
// type, or a value, that can't be presented as was asked; --on-corrupt does not apply to it. Both
// have the column and the reason; the caller knows the shard, the row group and the row.
package rows
