// Package fs presents a dataset as a tree of files through FUSE: names, handles,
// the control file `checkpoint`, errors to errno. It knows nothing of formats.
//
// # The tree
//
//	MNT/README, dataset.json           exact sizes, constant
//	MNT/status, status.json, metrics   rendered at open, size unknown
//	MNT/checkpoint                     the control file: reads save, writes restore
//	MNT/worker-0.tar …                 what is left of the epoch: one view
//	MNT/epoch-N/[from-M/]worker-w-of-W.tar …   pure functions of their names
//
// # Views and inodes
//
// A restore makes a new view: a set of streams, the marks of their readers, and
// inode numbers of its own. Worker files and the control file are nodes of one
// view, looked up anew at every use of their names (their entries have no
// timeout), so that a path leads to the new inode at once, and an inode never
// changes its size or bytes. Handles of a view that is gone answer ESTALE.
//
// # Memory
//
// Nodes hold a name's meaning and size, not streams: those belong to handles
// and to the current view. go-fuse drops nodes when the kernel forgets them.
package fs
