// Package state is what the driver keeps on disk, so that a restarted driver knows what its
// predecessor was doing. It is below the plugin's directory:
//
//	DIR/key                     32 random bytes: the key of servers' names
//	DIR/volumes/ID.json         Volume: a pod's target, written before anything is done for it, removed
//	                            when nothing is left of it
//	DIR/servers/KEY/server.json Server: what a server was started with, and which process it is
//	DIR/servers/KEY/mnt         its mount point
//
// All files have mode 0600, in directories of mode 0700, and contain no credentials. Records are
// written atomically: to a file of another name, which is synced and renamed. The number of a
// server's volumes is not stored but counted.
//
// A Store is safe for concurrent use. If two callers write the same record, the last one wins, so
// callers have to exclude each other.
package state
