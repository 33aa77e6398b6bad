// Package discover finds out which files are the shards of a dataset, and of which
// format they are. RECORDS.md ("Which files are shards") has the rules; this package
// applies them to what a storage lists.
//
//	DATASET ─ ParseTarget ─► Target: a directory, a file, or a pattern below a directory
//	  ─ list ─► files, but for hidden ones and the index directory
//	  ─ names ─► a codec by the ending (.gz .zst .lz4), a format by the one before it
//	  ─ sniff ─► a format by the first bytes, where the name says nothing
//	  ─► Found: the format, the shards in dataset order, what was passed over
//
// Who asks for a format by its name gets the files that have its extension, or all
// files where none has. With format auto the names decide first. Files whose names
// say nothing are opened, and so are those that two formats claim: a .tar may be games
// of lc0. Text counts as a dataset only where there is nothing else, so a README
// beside shards does no harm.
//
// Errors are for the person who typed DATASET. They name files and say what to type
// instead: two formats at once, none at all, one that lsiofs can't read yet, a number
// of a pattern's range that has no file.
//
//	target.go    what DATASET stands for
//	pattern.go   patterns: *, **, {a,b}
//	ranges.go    and {000..146}, each number of which must have a file
//	listing.go   files below a root
//	arrays.go    several arrays that are read together, a file of each
//	names.go     what names say
//	sniff.go     what contents say
//	find.go      the decision
//	refusals.go  the errors
//
// A file that was opened and is no shard is in Found.Judged. Callers keep these, and
// answer for them with Config.Known in the next run: then an unchanged dataset is
// found without opening a file.
package discover
