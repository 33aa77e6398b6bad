package profile

// Possible returns the throughput, in bytes per second, that was measured with reads of about that
// size, with any number in flight; 0 if nothing was measured.
func Possible(measured []Cell, readBytes float64) float64 {
	size := int64(0) // the largest measured size that is no larger, or else the smallest
	for _, c := range measured {
		fits, sizeFits := float64(c.ReadBytes) <= readBytes, float64(size) <= readBytes
		if size == 0 || fits && (!sizeFits || c.ReadBytes > size) || !fits && !sizeFits && c.ReadBytes < size {
			size = c.ReadBytes
		}
	}
	best := 0.0
	for _, c := range measured {
		if c.ReadBytes == size {
			best = max(best, c.BytesPerSecond)
		}
	}
	return best
}
