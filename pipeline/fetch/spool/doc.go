// Package spool keeps compressed shards decoded, in a file on a local disk, for
// readers that jump about in them: each is decoded once, and its pieces are then read
// from there.
//
//	decoder ──► sums ──► File     one shard, in one or more runs of pages
//	                     ├───┬─────┬───┬──┤
//	                      s0  s3    s0  s7
//
// File gives room in a file that has no name, so nothing is left of it however the
// process ends. A disk may lose what was written, long after it was: then the kernel
// shows zeros. So every block of 64 KiB or less has a checksum, taken from the decoded
// bytes before they are written (Summer), and what is read is compared with it
// (Compare) before anybody gets a byte of it. Blocks begin where pieces do (Pieces),
// and reads are made of whole blocks (Widener). Losses remembers what was lost, and
// which shards are better read without the spool for a while.
package spool
