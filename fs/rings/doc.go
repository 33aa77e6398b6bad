// Package rings carries requests of the kernel to a FUSE file system, and replies back, through io_uring (Linux 6.14,
// https://docs.kernel.org/filesystems/fuse/fuse-io-uring.html). A request and its reply take one system call, where
// /dev/fuse takes two, and they stay on the reader's processor.
//
//	client ──► kernel ──┬─ a queue for each processor ─► ring and thread ─┐
//	                    │                                                 ├─► fuse.ProtocolServer ─► nodes
//	                    └─ /dev/fuse: INIT, FORGET, INTERRUPT ────────────┘
//
// go-fuse's Server mounts, answers INIT, and sends what the file system says by itself (notifications). Where the
// kernel has agreed to rings, Server here takes over the rest from it. Names of operations and structures are those of
// include/uapi/linux/fuse.h.
//
// # Threads
//
// A ring has room for one request, and belongs to one thread, which answers it before it takes the next: so nothing
// is handed from thread to thread, and a request that waits for storage keeps no other waiting while its processor has a
// thread left. On machines of up to 4 processors each has 64 threads, on larger ones down to 4. Beyond that
// requests wait, also those that need no storage: this is where /dev/fuse, which has no such bound, is better. The
// kernel gives a request to the thread that was free last, so the others cost little: a descriptor and some 20 KB.
//
// # Memory
//
// Each thread has room for the longest reply, 1 MiB, which the kernel gives memory when it is first written. What the
// threads hold together stays near 16 MiB: beyond that, a thread gives it back when its reply has gone.
//
// # The end
//
// An unmount ends the commands in the rings with ENOTCONN, and the read of /dev/fuse with ENODEV. Requests under way
// are interrupted then, as often as it takes. A process that is killed takes its rings with it, and readers get ENOTCONN.
package rings
