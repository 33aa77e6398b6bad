package fs

import (
	"os"
	"runtime"
)

// waitingThreads bounds the threads that wait in the kernel for requests: FUSE's library has no
// more.
const waitingThreads = 16

// MoreThreads raises GOMAXPROCS above the number of processors, for a process that serves a mount.
// Code that sizes work by the number of processors must read that number first.
//
// A thread that waits in the kernel for the next request still occupies a slot of GOMAXPROCS, until
// the runtime's monitor takes it away 20 µs to 10 ms later. At one request per MiB this cost a
// fifth of the time of two processors while decoders waited, and a quarter of the throughput of
// four readers.
//
// So one is added for each processor, up to the number of waiting threads. Not more, because each
// costs memory: FUSE's library and Go keep buffers for each.
//
// It does nothing if GOMAXPROCS is set in the environment. After the call, Go no longer follows
// changes of a container's CPU limit.
func MoreThreads() {
	if os.Getenv("GOMAXPROCS") == "" {
		cores := runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(cores + min(cores, waitingThreads))
	}
}
