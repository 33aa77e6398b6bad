//go:build !amd64 && !arm64

package stream

// prefetch is left to the processor.
func prefetch([]byte, int) {}

// prefetchFar is, too.
func prefetchFar([]byte, int) {}
