// Package fs mounts a dataset as a directory tree through FUSE: files that training programs read
// as streams, status files, and the file checkpoint, which saves and restores the position. It
// implements names, handles and the mapping of errors to errnos, and knows nothing of record
// formats.
//
//	kernel ──READ──► node (a name) ──► handle ──► stream.Handle ──► Reply ──writev──► kernel
//	                                     └─► mark of the worker file ──► checkpoint
//
// # The tree
//
//	MNT/README, dataset.json           exact sizes, constant
//	MNT/status, status.json, metrics   rendered for each look-up of the name
//	MNT/checkpoint                     the control file: reads save, writes restore
//	MNT/worker-0.tar …                 the rest of the epoch: one view
//	MNT/epoch-N/[from-M/]worker-w-of-W.tar …   pure functions of their names
//
// # Views and inodes
//
// A restore makes a new view: a set of streams, the marks of their readers, and its own inode
// numbers. Worker files and the control file are nodes of one view. The kernel looks up their names
// at every use (the entries have no timeout). So a path leads to the new inode at once, and an
// inode never changes its size or bytes. Handles of an old view answer ESTALE.
//
// # Memory
//
// A node holds the meaning of a name and its size, but no stream: streams belong to handles and to
// the current view. go-fuse drops nodes when the kernel forgets them. Inode numbers below epoch-N
// are computed from the names, so they stay the same after that.
//
// # Signals
//
// The kernel interrupts a request for every signal to its client, and FUSE would return EINTR even
// to programs that merely handle the signal. So a request is cancelled only if its client is dying,
// as shown by /proc. One goroutine watches all interrupted clients that are still waiting
// (interrupts). A client in another PID namespace can't be observed; its request is cancelled a
// minute after the signal.
//
// # Where time goes
//
// Each read of a stream records in the dataset's meter how long it waited and for which stage, how
// long it worked, and how long the hand-over to the kernel took. That is a few additions, and no
// lock unless it waits. The recorder, one goroutine, keeps the counters of each second of the last
// minute, and calls Dataset.Status once a second. From these, status, status.json and metrics
// report what readers wait for.
//
// # Newer kernel interfaces
//
// Package kernelbench measures what they gain, with a server of constant bytes; its manual has the
// figures.
//
//	interface                                  GiB/s relative to /dev/fuse                used
//	requests of 4 MiB instead of 1 MiB         1.05, 4 readers 0.96                       no
//	a clone of the descriptor for each thread  1 MiB: 0.91, 4 readers 1.00                no
//	FUSE over io_uring, reads of 4 KiB         2.8, 4 readers 1.4                         on request
//	16 KiB                                     2.4, 1.4                                   on request
//	128 KiB                                    2.1, 1.35                                  on request
//	1 MiB                                      0.99, 0.79                                 on request
//
// Package rings is the transport for io_uring, which go-fuse lacks. Streams gain as much (its
// manual has the figures). It copies what is sent once more, which is why large reads lose; kernels
// disable it by default; and it bounds the number of requests that may wait at a time. So a mount
// must ask for it (Config.Rings).
//
// # Faults
//
// Failed reads are counted as faults, one for each object, range and reason, whatever file was read
// (problems). A fault is logged when it is new, then with a count at most once a minute, and at the
// end.
//
// # The end
//
// Unmount detaches the tree and lets readers finish until its context ends. End makes all requests
// for streams fail with ENOTCONN, including those that wait for storage, so that no reader keeps
// the process alive. When the last file is closed, serve stops the recorder and the other
// background goroutines, and Wait returns.
package fs
