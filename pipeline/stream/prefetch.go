//go:build amd64 || arm64

package stream

// prefetch has the processor fetch every step-th byte of b, and its cache line,
// without waiting for any. It never faults.
//
//go:noescape
func prefetch(b []byte, step int)
