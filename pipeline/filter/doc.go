// Package filter runs a program over the shards of a dataset, and makes another dataset from the
// results: for each shard of SRC, DST has what the program made of it, under the same path and in
// the same format and container.
//
//	SRC ─ sources ─► files that no process writes ─ discover ─► shards
//	  ─ examine ─► does this shard have a result, by this filter?    (package ledger)
//	  ─ whole · served · batches ─► the program's results            (packages units, command)
//	  ─ results ─► a temporary file, checked, on disk
//	  ─ commits ─► a line of the ledger, then the result's name
//
// A result gets its name once it is complete, and has been read once in the way the format reads
// it. So a mount of DST always sees complete files only. A process that is killed at any moment
// loses only its work in progress.
//
// By is how the program is run:
//
//	pipe     once per shard: the file on stdin, the result on stdout
//	dirs     once for up to 1000 units (or a shard): files in one directory, results in another
//	process  a few long-running processes: one unit (or shard) after another (command/protocol.go)
//
// An error caused by the program or a source is a *Failure: it is tried once more, and then ends
// the run, or is skipped and counted (OnFailed). Any other error, such as a full disk, ends the
// run.
//
//	filter.go    configuration, a run, and its progress
//	round.go     one look at SRC, what a shard is, whether it has a result, and the work that follows
//	sources.go   which files there are, and which of them are settled
//	watch.go     repeated looks, with package growing/watch; the outcome for each file
//	whole.go     whole shards
//	served.go    units, by long-running processes, and when to stop restarting them
//	batches.go   units, as files in directories
//	results.go   unfinished and finished results, and those whose sources are gone
package filter
