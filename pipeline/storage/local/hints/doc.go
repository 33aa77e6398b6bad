// Package hints says which files and directories below a directory may have changed, as
// inotify(7) reports it. A hint says where to look, never what is there: whoever gets one
// looks for himself.
//
//	Watch(dir) ─► the kernel reports what happens to its entries
//	Wake       ─► something was reported
//	Take       ─► the names that were, by directory; or that all is to be looked at
//
// Only changes that are made through this kernel are reported. So it is of use on local
// file systems (filesystem.Traits.Watched), and even there not for what is written through
// a mapping, or to the file that a symbolic link names.
//
// What is reported and not taken is bounded: above maxNames, directories are named as a
// whole. If the kernel drops reports (its queue is bounded, too), Take says All.
package hints
