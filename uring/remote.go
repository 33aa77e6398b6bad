package uring

import "github.com/lsiofs/lsiofs/uring/filesystem"

// Remote reports whether an open file is on storage where a read may wait for another process or
// machine, perhaps forever. Two rules follow:
//
//   - Its reads are made by threads. The kernel starts a direct read of FUSE within
//     io_uring_enter and waits there for the answer, so the whole ring waits; other reads
//     it passes to a few threads of its own.
//   - It is not mapped. Its pages may be taken away at any time, and a thread that
//     touches a missing page waits in a page fault. No signal ends that wait, and each
//     stop of the Go scheduler waits for it, too.
func Remote(fd int) bool { return filesystem.Of(fd).Remote }
