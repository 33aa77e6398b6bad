// Package hints reports which files and directories below a directory may have changed, using
// inotify(7). A hint is only where to look: the caller has to check the file itself.
//
//	Watch(dir) ─► the kernel reports what happens to the directory's entries
//	Wake       ─► something was reported
//	Take       ─► the reported names, by directory; or that everything must be checked
//
// Only changes made through this kernel are reported. So it is useful on local file systems
// (filesystem.Traits.Watched), and even there it does not report writes through a mapping, or
// writes to the file that a symbolic link points to.
//
// Reports that are not taken are bounded: above maxNames, whole directories are reported. If the
// kernel drops reports (its queue is bounded, too), Take returns All.
package hints
