//go:build amd64 || arm64

package blosc

// These functions unshuffle the first n &^ 15 of n elements. src has n bytes for each byte of an
// element, and dst has the same size.

//go:noescape
func unshuffle2(dst, src []byte, n int)

//go:noescape
func unshuffle4(dst, src []byte, n int)

//go:noescape
func unshuffle8(dst, src []byte, n int)

// unshuffleFast unshuffles the first elements with instructions that handle 16 at once, and returns
// how many.
func unshuffleFast(dst, src []byte, itemBytes, n int) int {
	switch itemBytes {
	case 2:
		unshuffle2(dst, src, n)
	case 4:
		unshuffle4(dst, src, n)
	case 8:
		unshuffle8(dst, src, n)
	default:
		return 0
	}
	return n &^ 15
}
