// Package run keeps the run directory of a dataset that grows: which epoch is of which set
// of shards. All nodes of a training share one, and it is all that they share.
//
//	DIR/run.json               what the run is; made once
//	DIR/epoch-0 epoch-1 …      which snapshot an epoch is of; made once each
//	DIR/snapshots/<64 hex>.gz  gzip of the text whose SHA-256 is the name
//	DIR/tmp-<12 random>        a file on its way; one older than a day is nobody's
//
// A snapshot's text is the one that a dataset's fingerprint is the SHA-256 of, so a
// snapshot checks itself:
//
//	zcat DIR/snapshots/8f29….gz | sha256sum
//
// # Who decides
//
// run.json and each epoch come into being by link(2) of a whole file to its name, which
// only one process can do. The first one wins and the others read what it has written.
// There is no leader, no lock and no clock, and nothing is ever changed: a process that
// is killed between any two of its system calls leaves a directory in which the epoch is
// taken, or not, and at most a file tmp-….
//
//	text ─► snapshots/<fingerprint>.gz   temporary, fsync, rename, fsync of the directory
//	Epoch ─► epoch-<number>              temporary, fsync, link, unlink, fsync of the directory
//
// A network file system may lose the answer to a link that it has made: a temporary file
// with two names is one that was linked. Where there are no hard links, a rename that
// replaces nothing does the same; where there is neither, the directory is refused.
//
// # What is read
//
// run.json and epoch-E have two lines of less than 4096 bytes: JSON without spaces, its
// fields in one order, and the SHA-256 of that line, with its end, in hexadecimal. What
// differs in a byte, is of another run, or has been written by somebody who may not write
// here, is an error that names the file. Snapshots are looked at as closely.
//
// The newest 64 snapshots are kept, up to 1 GiB of them; epochs are kept for ever.
package run
