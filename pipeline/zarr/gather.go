package zarr

import (
	"encoding/binary"
	"math/bits"
)

// gather copies n elements that are dstStep and srcStep bytes apart, and turns them around where
// they are big-endian. dst and src have them all.
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

// gatherReversed is gather for numbers of one unit, which are big-endian.
func (c *Copier) gatherReversed(dst, src []byte, n, dstStep, srcStep int) {
	le := binary.LittleEndian
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

// reverseUnits copies an element, each of its numbers in the order that it needs.
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
