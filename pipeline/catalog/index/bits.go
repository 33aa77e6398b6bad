package index

import (
	"encoding/binary"
	"math/bits"
)

// Bit fields: value i of an area of width w occupies bits [i·w, (i+1)·w), counted from the lowest
// bit of the area's first byte. Areas begin at a byte.

// appendBits appends the lowest width bits of each value to dst.
func appendBits(dst []byte, width uint, values []uint64) []byte {
	if width == 0 {
		return dst
	}
	var acc uint64 // bits not written yet, fewer than 8 between values
	var held uint
	for _, v := range values {
		acc |= v << held
		n := held + width
		if n < 64 {
			held = n
		} else {
			dst = binary.LittleEndian.AppendUint64(dst, acc)
			acc, held = 0, n-64
			if held > 0 {
				acc = v >> (width - held)
			}
		}
		for held >= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
			held -= 8
		}
	}
	if held > 0 {
		dst = append(dst, byte(acc))
	}
	return dst
}

// bitsBytes returns the size in bytes of an area of n values.
func bitsBytes(n uint64, width uint) uint64 { return (n*uint64(width) + 7) / 8 }

// bitsAt returns value i of the area that begins at byte from of b. It panics if the value is
// outside b.
func bitsAt(b []byte, from uint64, width uint, i uint64) uint64 {
	bit := i * uint64(width)
	at, shift := from+bit>>3, uint(bit&7)
	if at+8 > uint64(len(b)) || shift+width > 64 {
		return bitsAtEdge(b, at, shift, width)
	}
	return binary.LittleEndian.Uint64(b[at:]) >> shift & (1<<width - 1)
}

// bitsAtEdge is bitsAt for values with fewer than 8 bytes left to load, or that span 9 bytes.
func bitsAtEdge(b []byte, at uint64, shift, width uint) uint64 {
	need := (uint64(shift+width) + 7) / 8
	var buf [9]byte
	copy(buf[:], b[at:at+need])
	v := binary.LittleEndian.Uint64(buf[:]) >> shift
	if shift+width > 64 {
		v |= uint64(buf[8]) << (64 - shift)
	}
	return v & (1<<width - 1)
}

// sumBits returns the sum of values [0, n) of an area, processing several per load.
func sumBits(b []byte, from uint64, width uint, n uint64) (sum uint64) {
	if width == 0 {
		return 0
	}
	var i uint64
	if width <= 28 { // at least two in the 57 bits that every load provides
		per, mask := uint64(57/width), uint64(1)<<width-1
		for ; i+per <= n; i += per {
			bit := i * uint64(width)
			at := from + bit>>3
			if at+8 > uint64(len(b)) {
				break
			}
			v := binary.LittleEndian.Uint64(b[at:]) >> (bit & 7)
			for range per {
				sum += v & mask
				v >>= width
			}
		}
	}
	for ; i < n; i++ {
		sum += bitsAt(b, from, width, i)
	}
	return sum
}

// addBits sets dst to base plus values [0, len(dst)) of an area.
func addBits(dst []int64, b []byte, from uint64, width uint, base int64) {
	i, n := 0, len(dst)
	if width > 0 && width <= 28 {
		per, mask := int(57/width), uint64(1)<<width-1
		for ; i+per <= n; i += per {
			bit := uint64(i) * uint64(width)
			at := from + bit>>3
			if at+8 > uint64(len(b)) {
				break
			}
			v := binary.LittleEndian.Uint64(b[at:]) >> (bit & 7)
			for k := range dst[i : i+per] {
				dst[i+k] = base + int64(v&mask)
				v >>= width
			}
		}
	}
	for ; i < n; i++ {
		dst[i] = base + int64(bitsAt(b, from, width, uint64(i)))
	}
}

// width returns the number of bits that v needs.
func width(v uint64) uint { return uint(bits.Len64(v)) }
