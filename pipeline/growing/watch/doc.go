// Package watch watches the files below a directory while programs write, move and delete there:
// it reports which files are settled, which have changed, and which are gone.
//
//	hints (inotify)  ─► names to look at ─┐
//	every Poll       ─► changed directories ├─► stat ─► Settling ─► StatStable, Gone
//	every 10 minutes ─► everything        ─┘
//
// Only a look at the file system decides what exists. A hint is only a place to look, so a lost
// hint costs time, but never a file: the kernel reports that hints were lost, and then everything
// is looked at; everything is looked at every ten minutes in any case. If the kernel reports
// nothing (network file systems), or has no watches left, directories whose modification time has
// changed are listed again every Poll. So are those reached through symbolic links, because a
// directory has only one watch but may have several names, and so is the root after it was replaced
// by another directory: while a process has the old one open, the replacement is not reported.
//
// A file is settled when no process has it open for writing (determined with a lease, fcntl(2)) and
// it stays unchanged for a second; without leases, when it stays unchanged for the time Settle. See
// discover.Settling.
//
//	watcher.go  opening, the goroutine, Scan, Status; a look at one file; names that are left out
//	step.go     what is due when
//	tree.go     directories: their entries at the last listing, and now
//
// It takes about 150 bytes of memory per file.
package watch
