// Package discover decides which files are the shards of a dataset, and what their format is.
// pipeline/format/SHARDS.md has the rules. Nothing is silently taken, left out or counted twice:
// each file of the listing has a verdict with a reason.
//
//	DATASET ─ ParseTarget ─► Target: a directory, a file, or a pattern below a directory
//	  ─ list ─► the files, and what is left out by name: hidden, _*, clutter, --exclude
//	  ─ namings ─► files of one directory whose names differ only in numbers
//	  ─ wanted ─► the files whose first bytes are needed; look reads them, in parallel
//	  ─ decide ─► a format or none for each naming, so a verdict for each file
//	  ─► Found: the format, the shards in dataset order, the Selection
//
// namings, wanted and decide are pure functions of the listing and of what the looks have shown. So
// the verdicts depend neither on the order in which files are listed or looked at, nor on the
// stored results of an earlier run.
//
// A file is never judged alone, but together with all files of its naming pattern. So a damaged
// file among intact ones is a damaged shard, which the index pass detects, and not a file of
// another kind. Names decide if any name of the target implies a format. Only if none does, the
// first bytes decide. If a file can't be read for that, the error names it, whatever the value of
// --on-corrupt.
//
// Errors are written for the person who typed DATASET. They name files and the next step: a
// pattern, --exclude, --format.
//
//	target.go     the meaning of DATASET; --exclude, and names that are never shards
//	pattern.go    patterns: *, **, {a,b}, and {000..146}, each number of which must have a file
//	listing.go    files below a root; two files that are the same shard
//	decide.go     the decision, for all files of a naming pattern together
//	find.go       the way from a listing to Found; formats shown by contents, or assumed until read
//	selection.go  a readable summary of what was taken and left out; the errors
//	arrays.go     several arrays that are read together, a file of each
//	zarr.go       hierarchies of Zarr arrays
//	arrivals.go   the same for files that arrive one after another; which of these are complete
//
// The codec of a shard is not part of the decision: the index pass determines it from the first
// bytes (formats.CodecOf), so no shard of an indexed dataset is opened for it. Found.Judged has the
// files that were looked at and are not shards. Callers store this list, and answer for these files
// with Config.Known in the next run. Then an unchanged dataset is found without opening a file.
package discover
