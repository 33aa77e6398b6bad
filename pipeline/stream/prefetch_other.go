//go:build !amd64 && !arm64

package stream

// prefetch does nothing here: prefetching is left to the CPU.
func prefetch([]byte, int) {}

// prefetchFar does nothing here.
func prefetchFar([]byte, int) {}
