// Package fs serves a dataset as a tree of files through FUSE. It knows names, handles,
// the control file `checkpoint`, and which errno an error becomes. It knows nothing of
// record formats.
//
//	kernel ──READ──► node (a name) ──► handle ──► stream.Handle ──► Reply ──writev──► kernel
//	                                     └─► mark of the worker file ──► checkpoint
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
// A restore makes a new view: a set of streams, the marks of their readers, and inode
// numbers of its own. Worker files and the control file are nodes of one view. The
// kernel looks up their names at every use (the entries have no timeout). So a path
// leads to the new inode at once, and an inode never changes its size or bytes. Handles
// of an old view answer ESTALE.
//
// # Memory
//
// A node holds what a name means and its size, but no stream: streams belong to handles
// and to the current view. go-fuse drops nodes when the kernel forgets them. Inode
// numbers below epoch-N are computed from the names, so they stay the same after that.
//
// # Signals
//
// The kernel interrupts a request for every signal to its client, and FUSE would return
// EINTR even to programs that merely handle the signal. So a request is given up only
// when its client is dying, which /proc shows. One goroutine looks at all interrupted
// clients that still wait (interrupts). A client in another PID namespace can't be
// looked at; its request is given up a minute after the signal.
//
// # Where time goes
//
// Each read of a stream books in the dataset's meter how long it waited, and for what,
// how long it worked, and how long the hand-over to the kernel took. That is a few
// additions, and no lock unless it waits. The recorder, one goroutine, keeps the
// counters of each second of the last minute, and calls Dataset.Status once a second.
// From these, status, status.json and metrics say what readers wait for.
//
// # Newer ways of the kernel
//
// Package kernelbench measures what they are worth, by a server of constant bytes; its manual has the figures.
//
//	way                                        gain, GiB/s to that of /dev/fuse           used
//	requests of 4 MiB, to those of 1 MiB       1.05, 4 readers 0.96                       no
//	a clone of the descriptor for each thread  1 MiB: 0.91, 4 readers 1.00                no
//	FUSE over io_uring, reads of 4 KiB         2.8, 4 readers 1.4                         when asked for
//	16 KiB                                     2.4, 1.4                                   when asked for
//	128 KiB                                    2.1, 1.35                                  when asked for
//	1 MiB                                      0.99, 0.79                                 when asked for
//
// Package rings is the transport for io_uring, of which go-fuse has none. Streams gain as much (its manual has the
// figures). What is sent is copied once more, which is why large reads lose; kernels have it switched off; and
// it bounds the requests that may wait at a time. So a mount must ask for it (Config.Rings).
//
// # Faults
//
// Failed reads are counted as faults, one for each object, range and reason, whatever
// file was read (problems). A fault is logged when it is new, then with a count at most
// once a minute, and at the end.
//
// # The end
//
// Unmount detaches the tree and lets readers finish until its context ends. End makes
// all requests for streams fail with ENOTCONN, also those that wait for storage, so no
// reader keeps the process alive. When the last file is closed, serve stops the recorder
// and the other background goroutines, and Wait returns.
package fs
