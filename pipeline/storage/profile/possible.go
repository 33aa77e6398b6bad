package profile

// Possible is how many bytes a second were measured with reads of about that size, with
// any number in flight; 0 if nothing was measured.
func Possible(measured []Cell, readBytes float64) float64 {
	size := int64(0) // the largest that is no larger, or the smallest
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
