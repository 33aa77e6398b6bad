// Package state is what the driver keeps on disk, so that one that is started again knows what
// its predecessor was doing. It is below the plugin's directory:
//
//	DIR/key                     32 random bytes: the key of servers' names
//	DIR/volumes/ID.json         Volume: a pod's target, written before anything is done for it, removed
//	                            when nothing is left of it
//	DIR/servers/KEY/server.json Server: what a server was started with, and which process it is
//	DIR/servers/KEY/mnt         where it mounts
//
// All is of mode 0600 in directories of 0700, and holds no credentials. A record is written whole
// or not at all: into a file of another name, which is synced and renamed. How many volumes a
// server has is not stored, but counted.
//
// A Store may be used concurrently; of two writers of one record the last one wins, so the
// caller keeps them apart.
package state
