// Package discover decides which files are the shards of a dataset, and of which format they
// are. RECORDS.md ("Which files are shards") has the rules. Nothing is taken, left out or
// counted twice in silence: each file of the listing has a verdict with a reason.
//
//	DATASET ─ ParseTarget ─► Target: a directory, a file, or a pattern below a directory
//	  ─ list ─► the files, and what is left out by name: hidden, _*, clutter, --exclude
//	  ─ namings ─► files of one directory whose names differ in numbers alone
//	  ─ wanted ─► of which files the first bytes are needed; look reads them, in parallel
//	  ─ decide ─► for each naming a format or none, so for each file a verdict
//	  ─► Found: the format, the shards in dataset order, the Selection
//
// namings, wanted and decide are pure functions of the listing and of what the looks have
// shown. So the verdicts depend neither on the order in which files are listed or looked at,
// nor on what is stored of an earlier run.
//
// A file is never judged by itself: its naming is. One that is damaged among sound ones is a
// damaged shard, which the index pass finds, and not another file. Names decide where any name
// of the target says a format. Only where none does, the first bytes decide. A file that can't
// be read for that is an error that names it, whatever --on-corrupt says.
//
// Errors are for the person who typed DATASET. They name files and say what to type instead:
// a pattern, --exclude, --format.
//
//	target.go     what DATASET stands for
//	pattern.go    patterns: *, **, {a,b}
//	ranges.go     and {000..146}, each number of which must have a file
//	exclude.go    --exclude, and names that are no shards' in any directory
//	listing.go    files below a root
//	arrays.go     several arrays that are read together, a file of each
//	namings.go    files that are one decision
//	decide.go     the decision
//	look.go       what contents show
//	assume.go     files that are taken for what their names say until they are read
//	twice.go      two shards that are one
//	selection.go  what was taken and what was left out, for people
//	refusals.go   the errors
//	arrivals.go   the same for files that come one after the other
//
// What the codec of a shard is, is no part of the decision: the pass that indexes it goes by
// its first bytes (formats.CodecOf), so that no shard of an indexed dataset is opened for it.
// Found.Judged has the files that were looked at and are no shards. Callers keep this list,
// and answer for these files with Config.Known in the next run. Then an unchanged dataset
// is found without opening a file.
package discover
