package zarr

// These functions convert the first n &^ 7 of n adjacent little-endian elements. All amd64
// processors have the instructions (SSE2).

//go:noescape
func convertInt8(dst, src []byte, n int, k *lanes)

//go:noescape
func convertUint8(dst, src []byte, n int, k *lanes)

//go:noescape
func convertInt16(dst, src []byte, n int, k *lanes)

//go:noescape
func convertUint16(dst, src []byte, n int, k *lanes)

//go:noescape
func convertInt32(dst, src []byte, n int, k *lanes)

//go:noescape
func convertFloat32(dst, src []byte, n int, k *lanes)

//go:noescape
func convertFloat64(dst, src []byte, n int, k *lanes)

// convertFast converts the first of n elements, sets those equal to the first missing element to
// NaN, and returns how many it converted.
func (c *conversion) convertFast(dst, src []byte, n int) int {
	switch {
	case c.class == anInt && c.item == 1:
		convertInt8(dst, src, n, &c.lanes)
	case c.class == aUint && c.item == 1:
		convertUint8(dst, src, n, &c.lanes)
	case c.class == anInt && c.item == 2:
		convertInt16(dst, src, n, &c.lanes)
	case c.class == aUint && c.item == 2:
		convertUint16(dst, src, n, &c.lanes)
	case c.class == anInt && c.item == 4:
		convertInt32(dst, src, n, &c.lanes)
	case c.class == aFloat && c.item == 4:
		convertFloat32(dst, src, n, &c.lanes)
	case c.class == aFloat && c.item == 8:
		convertFloat64(dst, src, n, &c.lanes)
	default:
		return 0
	}
	return n &^ 7
}
