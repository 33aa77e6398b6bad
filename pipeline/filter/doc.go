// Package filter runs a program over the shards of a dataset, and makes of them another
// dataset: DST has of each shard of SRC what the program made of it, under the same path
// and in the same format and container.
//
//	SRC ─ sources ─► files that nobody is writing ─ discover ─► shards
//	  ─ examine ─► is there a result of this shard, by this filter?  (package ledger)
//	  ─ whole · served · batches ─► the program's results            (packages units, command, protocol)
//	  ─ results ─► a temporary file, checked, on disk
//	  ─ commits ─► a line of the ledger, then the result's name
//
// A result gets its name when it is whole, and has been read once as the format reads it.
// So whoever mounts DST meanwhile sees whole files only. A process that is killed at any
// moment loses what it was doing, and nothing else.
//
// How the program is run is By:
//
//	pipe     once a shard: the file on stdin, the result on stdout
//	dirs     once for up to 1000 units (or a shard): files in one directory, results in another
//	process  a few that run for long: a unit (or a shard) after the other, by package protocol
//
// What the program, or a source, is to blame for is a *Failure: it is tried once more, and
// then ends the run, or is left out and counted (OnFailed). Anything else, such as a full
// disk, ends the run.
//
//	filter.go    what is asked for, and a run
//	round.go     one look at SRC, and what is done about it
//	sources.go   which files there are, and which of them are settled
//	watch.go     look after look, with package growing/looking
//	arrivals.go  the files that are settled meanwhile, and what has become of each
//	examine.go   what a shard is, and whether its result is there
//	whole.go     shards as a whole
//	served.go    units, by processes that run for long
//	batches.go   units, as files in directories
//	crashes.go   when a program is given up
//	results.go   results on their way
//	commits.go   results that are done
//	mirror.go    results whose sources are gone
//	counts.go    how far it is
package filter
