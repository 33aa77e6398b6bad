package blosc

import "encoding/binary"

// unshuffle puts the bytes of elements back together. src has the first bytes of all elements, then
// all second bytes, and so on; bytes after the last whole element are copied. dst has the size of
// src.
func unshuffle(dst, src []byte, itemBytes int) {
	n := len(src) / itemBytes
	done := unshuffleFast(dst, src, itemBytes, n)
	unshuffleRest(dst, src, itemBytes, n, done)
	whole := n * itemBytes
	copy(dst[whole:], src[whole:])
}

// unshuffleRest is unshuffle for the elements from first up to n, on any processor.
func unshuffleRest(dst, src []byte, itemBytes, n, first int) {
	le := binary.LittleEndian
	switch itemBytes {
	case 2:
		a, b := src[:n], src[n:2*n]
		for i := first; i < n; i++ {
			le.PutUint16(dst[2*i:], uint16(a[i])|uint16(b[i])<<8)
		}
	case 4:
		a, b, c, d := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
		for i := first; i < n; i++ {
			le.PutUint32(dst[4*i:], uint32(a[i])|uint32(b[i])<<8|uint32(c[i])<<16|uint32(d[i])<<24)
		}
	default:
		// A few elements at a time, so that the output stays in the cache.
		const some = 512
		for ; first < n; first += some {
			end := min(first+some, n)
			for j := range itemBytes {
				stream := src[j*n : (j+1)*n]
				at := first*itemBytes + j
				for _, b := range stream[first:end] {
					dst[at] = b
					at += itemBytes
				}
			}
		}
	}
}

// unshuffleBits puts the bits of elements back together, in place. The number of elements is a
// multiple of 8. b begins with a row of the lowest bits of the first bytes of all elements,
// followed by the next bits, and so on. scratch has the size of b; bytes of b after the last whole
// element stay.
func unshuffleBits(b, scratch []byte, itemBytes int) {
	n := len(b) / itemBytes
	row := n / 8
	le := binary.LittleEndian
	for j := range itemBytes {
		rows, out := b[8*j*row:8*(j+1)*row], scratch[j*n:(j+1)*n]
		for i := range row {
			x := uint64(rows[i]) | uint64(rows[row+i])<<8 | uint64(rows[2*row+i])<<16 | uint64(rows[3*row+i])<<24 |
				uint64(rows[4*row+i])<<32 | uint64(rows[5*row+i])<<40 | uint64(rows[6*row+i])<<48 | uint64(rows[7*row+i])<<56
			le.PutUint64(out[8*i:], transposeBits(x))
		}
	}
	whole := n * itemBytes
	unshuffle(b[:whole], scratch[:whole], itemBytes)
}

// transposeBits moves bit k of byte j to bit j of byte k, by exchanging squares of 1, 2 and 4 bits.
func transposeBits(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00AA00AA00AA00AA
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000CCCC0000CCCC
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000F0F0F0F0
	return x ^ t ^ t<<28
}
