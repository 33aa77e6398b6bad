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
// and to the current view. go-fuse drops nodes when the kernel forgets them. Inode
// numbers below epoch-N follow from names, so that they outlast that.
//
// # Signals
//
// The kernel interrupts a request for every signal to its client, and FUSE would hand
// EINTR to programs that merely handle one. So a request is given up only when its
// client is dying, which /proc shows; one goroutine looks at all clients that were
// interrupted and still wait (interrupts). A client of another PID namespace can't be
// looked at, and is let go a minute after the signal.
//
// # Where time goes
//
// Each read of a stream books in the dataset's meter what it waited for, worked for
// and took to be handed to the kernel: a few additions, no lock unless it waits. A
// recorder, one goroutine, keeps what the counters were at each second of the last
// minute, from which status, status.json and metrics say what readers wait for. It
// asks for Dataset.Status once a second.
//
// # Faults
//
// An error of a read is one of the faults that problems keeps: the same object,
// range and reason, whatever file was read. It is logged when it is new, then with
// a count, once a minute at most, and at the end.
//
// # The end
//
// Unmount detaches the tree and lets readers finish for as long as its caller waits.
// End makes all requests for streams fail with ENOTCONN, also those that wait for
// storage, so that no reader keeps the process. When the last file is closed, serve
// ends the recorder and what was started beside requests, and Wait returns.
package fs
