//go:build !amd64

package zarr

// convertFast leaves all elements to convertSlow.
func (c *conversion) convertFast(dst, src []byte, n int) int { return 0 }
