package zarr

import (
	"encoding/binary"
	"math/bits"
)

// gather copies n elements that are dstStep and srcStep bytes apart, and reverses the bytes of
// big-endian numbers. dst and src hold all of them.
func (c *Copier) gather(dst, src []byte, n, dstStep, srcStep int) {
	if c.units != nil {
		if len(c.units) == 1 && c.units[0].Count == 1 {
			c.gatherReversed(dst, src, n, dstStep, srcStep)
			return
		}
		item := int(c.item)
		for i := range n {
			reverseUnits(dst[i*dstStep:i*dstStep+item], src[i*srcStep:i*srcStep+item], c.units)
		}
		return
	}
	le := binary.LittleEndian
	switch c.item {
	case 1:
		for i := range n {
			dst[i*dstStep] = src[i*srcStep]
		}
	case 2:
		for i := range n {
			le.PutUint16(dst[i*dstStep:], le.Uint16(src[i*srcStep:]))
		}
	case 4:
		for i := range n {
			le.PutUint32(dst[i*dstStep:], le.Uint32(src[i*srcStep:]))
		}
	case 8:
		for i := range n {
			le.PutUint64(dst[i*dstStep:], le.Uint64(src[i*srcStep:]))
		}
	default:
		for i := range n {
			copy(dst[i*dstStep:], src[i*srcStep:i*srcStep+int(c.item)])
		}
	}
}

// gatherReversed is gather for elements that are one big-endian number.
func (c *Copier) gatherReversed(dst, src []byte, n, dstStep, srcStep int) {
	le := binary.LittleEndian
	if item := int(c.item); dstStep == item && srcStep == item && item < 8 {
		done := reverseWords(dst[:n*item], src[:n*item], item)
		dst, src, n = dst[done:], src[done:], n-done/item
	}
	switch c.item {
	case 2:
		for i := range n {
			le.PutUint16(dst[i*dstStep:], bits.ReverseBytes16(le.Uint16(src[i*srcStep:])))
		}
	case 4:
		for i := range n {
			le.PutUint32(dst[i*dstStep:], bits.ReverseBytes32(le.Uint32(src[i*srcStep:])))
		}
	default:
		for i := range n {
			le.PutUint64(dst[i*dstStep:], bits.ReverseBytes64(le.Uint64(src[i*srcStep:])))
		}
	}
}

// reverseWords reverses elements of 2 or 4 bytes, 8 bytes at a time, and returns how many bytes it
// did.
func reverseWords(dst, src []byte, item int) (done int) {
	le, n := binary.LittleEndian, len(src)
	const low = 0x00ff00ff00ff00ff
	for ; len(src) >= 8 && len(dst) >= 8; dst, src = dst[8:], src[8:] {
		x := le.Uint64(src)
		x = x&low<<8 | x>>8&low
		if item == 4 {
			x = x&0x0000ffff0000ffff<<16 | x>>16&0x0000ffff0000ffff
		}
		le.PutUint64(dst, x)
	}
	return n - len(src)
}

// reverseUnits copies an element, with each of its numbers in little-endian order.
func reverseUnits(dst, src []byte, units []Unit) {
	for _, u := range units {
		for range u.Count {
			if u.Big {
				for j := range u.Bytes {
					dst[j] = src[u.Bytes-1-j]
				}
			} else {
				copy(dst[:u.Bytes], src)
			}
			dst, src = dst[u.Bytes:], src[u.Bytes:]
		}
	}
}
