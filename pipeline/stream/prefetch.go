//go:build amd64 || arm64

package stream

// prefetch makes the CPU load the cache line of every step-th byte of b, without waiting. It never
// faults.
//
//go:noescape
func prefetch(b []byte, step int)

// prefetchFar is prefetch into the second-level cache, whose loads do not compete with the CPU's
// own.
//
//go:noescape
func prefetchFar(b []byte, step int)
