// Package looking follows the files below a directory: it says which are settled, which
// have changed, and which are gone, while programs write, move and delete there.
//
//	hints (inotify)  ─► names to look at ─┐
//	every Poll       ─► changed directories ├─► stat ─► Settling ─► Settled, Gone
//	every 10 minutes ─► everything        ─┘
//
// What is there is what a look finds. A hint only says where to look, so a hint that is
// lost costs time, and never a file: the kernel says that some were lost, and then
// everything is looked at; and every ten minutes in any case. Where the kernel reports
// nothing (network file systems), or has no watches left, directories whose modification
// time has changed are listed again every Poll. So are those behind symbolic links, as a
// directory has one watch and may have several names, and so is the root when another directory
// has its name: nothing is reported of that while somebody has the old one open.
//
// A file is settled when nobody has it open for writing and it stays as it is for a second
// (a lease says so, fcntl(2)); where there are no leases, when it stays as it is for the
// time Settle. See growing.Settling.
//
//	looker.go  opening, the goroutine, Scan, Status
//	step.go    what is due when
//	tree.go    directories: what they had, what they have
//	look.go    a look at one file
//
// Kept are about 150 bytes a file.
package looking
