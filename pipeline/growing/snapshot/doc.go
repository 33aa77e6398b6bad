// Package snapshot turns a directory whose shards change into epochs: it keeps an index of its
// shards, and when an epoch is requested that no node has started yet, it decides which shards the
// epoch has, and records that in the run directory.
//
//	files ──Watcher──► settled ──queue, a goroutine──► Index.Index
//	request for epoch L+1 ──► look again, wait for the index ──► newest shards, window
//	                       ──► enough new data? ──► text ──► run directory
//	any epoch ──► its snapshot's text ──► Index.Seal ──► Catalog
//
// The node that starts an epoch decides on its shards for all nodes: the others read its record,
// and look for the same shards among their own files.
//
//	snapshotter.go    opening and closing
//	queue.go    files to be indexed
//	indexing.go the goroutine that indexes them
//	take.go     starting the next epoch
//	catalog.go  the catalog of an epoch that has been started
//	hold.go     links to the shards of snapshots
//	status.go   the status for users
//	wait.go     waiting for the first epoch
//	windows.go  warnings about clocks and differing windows
package snapshot
