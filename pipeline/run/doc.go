// Package run manages the run directory of a dataset that grows, which records the set of shards of
// each epoch. All nodes of a training share one, and nothing else.
//
//	DIR/run.json               description of the run; written once
//	DIR/epoch-0 epoch-1 …      the snapshot of each epoch; each written once
//	DIR/snapshots/<64 hex>.gz  gzip of the text whose SHA-256 is the name
//	DIR/tmp-<12 random>        a temporary file; abandoned if older than a day
//
// A dataset's fingerprint is the SHA-256 of its snapshot's text, so a snapshot can be checked by
// its name:
//
//	zcat DIR/snapshots/8f29….gz | sha256sum
//
// # Who decides
//
// run.json and each epoch are created by link(2) of a complete file to its name, which only one
// process can do. The first one wins and the others read what it has written. There is no leader,
// no lock and no clock, and nothing is ever changed: a process that is killed between any two of
// its system calls leaves a directory in which the epoch has been started, or not, and at most a
// file tmp-….
//
//	text ─► snapshots/<fingerprint>.gz   temporary, fsync, rename, fsync of the directory
//	Epoch ─► epoch-<number>              temporary, fsync, link, unlink, fsync of the directory
//
// A network file system may lose the reply to a successful link: if a temporary file has two names,
// the link succeeded. Without hard links, a rename that does not replace is used instead; without
// either, the directory is rejected.
//
// # What is read
//
// run.json and epoch-E have two lines, less than 4096 bytes together: JSON without spaces, with
// fields in a fixed order, and the SHA-256 of that line, including its end, in hexadecimal. A file
// that differs in one byte, belongs to another run, or was written by an untrusted user, is an
// error that names the file. Snapshots are checked as strictly.
//
// The newest 64 snapshots are kept, up to 1 GiB of them; epochs are kept forever.
package run
