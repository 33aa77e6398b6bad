package fs

import (
	"os"
	"runtime"
)

// threadsPerCore is how many goroutines may run at once while a mount is served,
// for each processor.
const threadsPerCore = 2

// MoreThreads lets Go run more goroutines at once than there are processors, for
// a process that serves a mount; whoever sizes work by the number of processors
// asks before. A thread that waits in the kernel for the next request keeps its
// place among those that may run until the runtime's monitor takes it away, 20 µs
// to 10 ms later: at a request a MiB, a fifth of the time of two processors was
// lost by that while decoders waited, and a quarter of four readers' rate.
//
// It does nothing where GOMAXPROCS is set in the environment. From then on Go
// does not follow changes of a container's limit.
func MoreThreads() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threadsPerCore * runtime.GOMAXPROCS(0))
	}
}
