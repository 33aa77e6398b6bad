//go:build !amd64 && !arm64

package blosc

// unshuffleFast does no elements: all are left to what any processor can.
func unshuffleFast(_, _ []byte, _, _ int) int { return 0 }
