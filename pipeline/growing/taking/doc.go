// Package taking turns a directory that shards arrive in and leave into epochs: it keeps an
// index of what is there, and when an epoch is asked for that nobody has taken yet, it
// decides which shards the epoch is of, and records that in the run directory.
//
//	files ──Looker──► settled ──queue, a goroutine──► Stock.Index
//	epoch L+1 is asked for ──► look again, wait for the index ──► newest shards, window
//	                       ──► enough that is new? ──► text ──► run directory
//	any epoch ──► its snapshot's text ──► Stock.Seal ──► Catalog
//
// Who takes an epoch decides for all nodes which shards it is of: the others read what it
// has recorded, and look for the same shards among their own files.
//
//	taker.go    opening and closing
//	queue.go    files that are to be indexed
//	indexing.go the goroutine that indexes them
//	take.go     taking the next epoch
//	catalog.go  the catalog of an epoch that is taken
//	hold.go     links to the shards of snapshots
//	status.go   what a user is shown
//	wait.go     waiting for the first epoch
package taking
