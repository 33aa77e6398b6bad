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
// If a format is asked for by name, the shards are the files with its extension, or all
// files if none has it. With format auto the names decide first. A file is opened if its
// name says nothing, or if two formats claim it: a .tar may hold games of lc0. At services
// two such files are opened, and the pass sees what the others are (Config.AssumeAlike).
// Text is a dataset only if there is nothing else, so a README beside shards does no harm.
//
// Errors are for the person who typed DATASET. They name files and say what to type
// instead. Examples: there are two formats, or none; lsiofs can't read the format yet; a
// number of a pattern's range has no file.
//
//	target.go    what DATASET stands for
//	pattern.go   patterns: *, **, {a,b}
//	ranges.go    and {000..146}, each number of which must have a file
//	listing.go   files below a root
//	arrays.go    several arrays that are read together, a file of each
//	names.go     what names say
//	sniff.go     what contents say
//	assume.go    files that are taken for what their names say until they are read
//	find.go      the decision
//	refusals.go  the errors
//
// Found.Judged has the files that were opened and are no shards. Callers keep this list,
// and answer for these files with Config.Known in the next run. Then an unchanged dataset
// is found without opening a file.
package discover
