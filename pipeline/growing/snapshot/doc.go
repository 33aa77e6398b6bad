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
//	snapshotter.go  opening and closing; the status for users
//	start.go        starting the next epoch, and waiting for the first one
//	catalog.go      files to be indexed; the catalog of an epoch that has been started
//	hold.go         links to the shards of snapshots
package snapshot
