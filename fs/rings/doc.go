// Package rings carries requests of the kernel to a FUSE file system, and replies back, through
// io_uring (Linux 6.14, https://docs.kernel.org/filesystems/fuse/fuse-io-uring.html). A request and
// its reply take one system call instead of two with /dev/fuse, and they stay on the reader's
// processor.
//
//	client ──► kernel ──┬─ a queue for each processor ─► ring and thread ─┐
//	                    │                                                 ├─► fuse.ProtocolServer ─► nodes
//	                    └─ /dev/fuse: INIT, FORGET, INTERRUPT ────────────┘
//
// go-fuse's Server mounts, answers INIT, and sends notifications of the file system. If the kernel
// has agreed to rings, Server here takes over the rest from it. Names of operations and structures
// are those in include/uapi/linux/fuse.h.
//
// # Threads
//
// A ring has room for one request, and belongs to one thread, which answers the request before it
// takes the next. So no request is handed from thread to thread, and one that waits for storage
// blocks no other as long as its processor has a free thread. On machines with up to 4 processors
// each has 64 threads, and on larger machines fewer, at least 4; an offline processor has one.
// Further requests wait, even those that need no storage: in this respect /dev/fuse, which has no
// such bound, is better. The kernel gives a request to the thread that became free last, so the
// others cost little: a descriptor and some 20 KB.
//
// # Memory
//
// Each thread has room for the longest reply, 1 MiB, for which the kernel allocates memory at the
// first write. In total the threads keep about 16 MiB, on machines with more than 16 processors
// about 1 MiB for each processor: beyond that, a thread gives back its memory once its reply has
// been sent, unless that is at most 64 KiB.
//
// # Measurements
//
// Streams of tar samples of 12.5 KB in the page cache, GiB/s, medians (least to greatest) of 5
// alternating rounds, 2 cores, Linux 6.18; reads of the given size, by dd:
//
//	a read     1 reader /dev/fuse   rings                      4 readers /dev/fuse   rings
//	4 KiB      0.15 (0.15–0.16)     0.36 (0.28–0.37)  2.3      0.36 (0.35–0.37)      0.57 (0.56–0.60)  1.6
//	10 KiB     0.34 (0.34–0.35)     0.82 (0.79–0.85)  2.4      0.79 (0.73–0.81)      1.24 (1.06–1.30)  1.6
//	32 KiB     0.96 (0.80–1.08)     1.92 (1.63–2.01)  2.0      1.88 (1.72–2.06)      3.03 (2.70–3.22)  1.6
//	128 KiB    2.43 (2.10–2.52)     3.92 (3.02–4.20)  1.6      4.55 (4.32–4.68)      5.35 (5.23–5.71)  1.2
//	256 KiB    3.14 (2.63–3.84)     5.00 (3.53–5.52)  1.6      5.69 (5.12–6.65)      6.43 (4.77–6.53)  1.1
//	512 KiB    4.69 (3.65–4.91)     5.30 (3.72–5.45)  1.1      7.04 (6.40–7.84)      6.51 (6.12–6.67)  0.9
//	1 MiB      5.26 (4.20–5.42)     4.16 (3.73–4.39)  0.8      7.23 (6.64–7.65)      5.13 (4.76–5.36)  0.7
//
// With a ring, sent data is copied once more than with /dev/fuse: to the ring's memory, from which
// the kernel copies it.
//
// # The end
//
// An unmount ends the commands in the rings with ENOTCONN, and the read of /dev/fuse with ENODEV.
// Requests in flight are then interrupted, repeatedly until they end. The rings of a killed process
// end with it: readers get ENOTCONN, and those that were waiting get ECANCELED or ECONNABORTED.
//
// A read result is done when it has been copied to the ring's memory. The kernel's copy to the
// reader comes after that, and no meter counts it.
package rings
