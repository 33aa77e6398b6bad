//go:build amd64 || arm64

package stream

// prefetch has the processor fetch every step-th byte of b, and its cache line,
// without waiting for any. It never faults.
//
//go:noescape
func prefetch(b []byte, step int)

// prefetchFar is prefetch into the second level of caches, whose loads do not take room
// from those of the processor itself.
//
//go:noescape
func prefetchFar(b []byte, step int)
