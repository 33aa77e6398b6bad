// Package parquet decodes Parquet files to vectors of package rows: selected columns of one row
// group, from any row on. It reads what is asked for through an io.ReaderAt and has no goroutines.
//
//	Open ──► File: Schema, row groups          rows.Resolve(f.Schema, …) ──► columns
//	File.Select(columns) ──► Selection ──┬──► Ranges(group): what is read of a row group
//	                                     └──► NewCursor ──► Open(group, point) ──► Next: a rows.Batch
//
// # From pages to vectors
//
// A leaf (page.go) is a column chunk that is being read. It has one page at a time: its levels, its
// values or indexes of the dictionary, and an index from slots to values. Values of the encoding
// PLAIN are used where they are in the decompressed page. A column (assemble.go) that is a leaf
// outside of lists is that index and those values: nothing is copied. For other columns, offsets
// and nulls of its lists and structs are computed from the levels of its leaves, which must agree.
// A batch ends where the first of the columns has no more rows.
//
// A row that begins in one page and ends in the next is kept: its levels and values are moved to
// the beginning of the buffers, and the next page is decoded behind them.
//
// # Points
//
// Cursor.Point returns where each column's next row begins: the page, the rows of that page before
// it, and the values of earlier pages. From there decoding continues with the same rows, whatever
// is between. Without a point, rows are passed over: pages whose headers have their number of rows,
// without decompressing them.
//
// # What is checked
//
// Nothing that a file claims is believed: sizes are checked against the bytes that are there, and
// against what a codec can make of them, before memory is taken; Options.MaxBytes bounds all
// buffers of a cursor. Levels must be those of a tree of the schema, indexes must be in the
// dictionary, all columns must have the number of rows that the footer has, and pages must match
// their CRCs if they have any. So vectors never refer to what is not there. Anything else is a
// *DamageError, which has the row group, the column and the page, and concerns that row group
// alone; Group -1 is the footer, so the shard. What lsiofs does not read, damaged or not, is a
// *rows.RefusedError. Errors of the io.ReaderAt are returned as they are.
//
// # Why it is not a library
//
// parquet-go's packages for encodings panic, or allocate gigabytes, on damaged input of less than
// 200 bytes; its own readers and arrow-go's do too, and can't start in the middle of a column chunk.
package parquet
