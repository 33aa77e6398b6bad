package parquet

import (
	"encoding/binary"
	"math/bits"
)

// hybrid reads the encoding "RLE / bit-packing hybrid": runs of one value, and groups of 8 values of
// width bits each. It is used for levels, indexes of dictionaries, and bools.
type hybrid struct {
	b     []byte
	width int
	run   int    // values left of a run of one value
	value uint32 // of that run
	left  int    // values left of packed
	bits  []byte // the packed values, and where they continue
	at    int    // bit of bits at which the next value begins
}

const (
	errLevelsShort = reason("its levels or indexes end early")
	errRunWide     = reason("a run has a value that is wider than the bit width")
)

// more reads the head of the next run.
func (h *hybrid) more() error {
	head, n := binary.Uvarint(h.b)
	if n <= 0 || head > 1<<33 {
		return errLevelsShort
	}
	h.b = h.b[n:]
	if head&1 == 0 {
		size := (h.width + 7) / 8
		if len(h.b) < size {
			return errLevelsShort
		}
		var value uint64
		for i := range size {
			value |= uint64(h.b[i]) << (8 * i)
		}
		if value>>h.width != 0 {
			return errRunWide
		}
		h.b = h.b[size:]
		h.run, h.value = int(head>>1), uint32(value)
		return nil
	}
	groups := int(head >> 1)
	size := groups * h.width
	h.left, h.at = groups*8, 0
	if size > len(h.b) { // writers may leave out what is behind the last value
		size = len(h.b)
		if h.width > 0 {
			h.left = size * 8 / h.width
		}
		if h.left == 0 {
			return errLevelsShort
		}
	}
	h.bits, h.b = h.b[:size], h.b[size:]
	return nil
}

// levels decodes len(dst) values of at most 8 bits. A value above most is damage.
func (h *hybrid) levels(dst []uint8, most uint8) error {
	for len(dst) > 0 {
		switch {
		case h.run > 0:
			n := min(h.run, len(dst))
			if h.value > uint32(most) {
				return damaged("a level is %d, and the schema has at most %d", h.value, most)
			}
			fill(dst[:n], uint8(h.value))
			h.run -= n
			dst = dst[n:]
		case h.left > 0:
			n := min(h.left, len(dst))
			h.unpackLevels(dst[:n])
			for _, v := range dst[:n] {
				if v > most {
					return damaged("a level is %d, and the schema has at most %d", v, most)
				}
			}
			h.left -= n
			dst = dst[n:]
		default:
			if err := h.more(); err != nil {
				return err
			}
		}
	}
	return nil
}

func fill(dst []uint8, v uint8) {
	if v == 0 {
		clear(dst)
		return
	}
	if len(dst) == 0 {
		return
	}
	dst[0] = v
	for n := 1; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// unpackLevels unpacks the next len(dst) packed values.
func (h *hybrid) unpackLevels(dst []uint8) {
	if h.width == 1 && h.at&7 == 0 {
		whole := len(dst) / 8
		for i, b := range h.bits[h.at/8:][:whole] {
			binary.LittleEndian.PutUint64(dst[8*i:], spread(b))
		}
		h.at += 8 * whole
		dst = dst[8*whole:]
	}
	mask := uint64(1)<<h.width - 1
	for i := range dst {
		dst[i] = uint8(load(h.bits, h.at>>3) >> (h.at & 7) & mask)
		h.at += h.width
	}
}

// spread returns the bits of b as bytes, the lowest bit in the lowest byte.
func spread(b byte) uint64 {
	x := uint64(b) * 0x0101010101010101 & 0x8040201008040201
	return (x + 0x7f7f7f7f7f7f7f7f) >> 7 & 0x0101010101010101
}

// load returns up to 8 bytes from at on, little-endian; zeros after the end.
func load(b []byte, at int) uint64 {
	if at+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[at:])
	}
	var v uint64
	for i := at; i < len(b); i++ {
		v |= uint64(b[i]) << (8 * (i - at))
	}
	return v
}

// indexes decodes len(dst) indexes of a dictionary of n values. Others are damage.
func (h *hybrid) indexes(dst []int32, n int) error {
	for len(dst) > 0 {
		switch {
		case h.run > 0:
			k := min(h.run, len(dst))
			if uint64(h.value) >= uint64(n) {
				return errIndex(int64(h.value), n)
			}
			for i := range dst[:k] {
				dst[i] = int32(h.value)
			}
			h.run -= k
			dst = dst[k:]
		case h.left > 0:
			k := min(h.left, len(dst))
			h.at = unpack32(dst[:k], h.bits, h.at, h.width)
			var highest uint32
			for _, v := range dst[:k] {
				highest = max(highest, uint32(v))
			}
			if uint64(highest) >= uint64(n) {
				return errIndex(int64(highest), n)
			}
			h.left -= k
			dst = dst[k:]
		default:
			if err := h.more(); err != nil {
				return err
			}
		}
	}
	return nil
}

func errIndex(index int64, n int) error {
	return damaged("an index is %d, and the dictionary has %d values", index, n)
}

// unpack32 unpacks len(dst) values of width bits, at most 32, from bit at of b, and returns the bit
// after them. b has all of them.
func unpack32(dst []int32, b []byte, at, width int) int {
	mask := uint64(1)<<width - 1
	i := 0
	if width > 0 && width <= 8 && at&7 == 0 {
		for ; i+8 <= len(dst) && at>>3+8 <= len(b); i += 8 {
			v := binary.LittleEndian.Uint64(b[at>>3:])
			d := dst[i : i+8 : i+8]
			d[0] = int32(v & mask)
			d[1] = int32(v >> width & mask)
			d[2] = int32(v >> (2 * width) & mask)
			d[3] = int32(v >> (3 * width) & mask)
			d[4] = int32(v >> (4 * width) & mask)
			d[5] = int32(v >> (5 * width) & mask)
			d[6] = int32(v >> (6 * width) & mask)
			d[7] = int32(v >> (7 * width & 63) & mask)
			at += 8 * width
		}
	}
	for ; i < len(dst) && at>>3+8 <= len(b); i++ {
		dst[i] = int32(binary.LittleEndian.Uint64(b[at>>3:]) >> (at & 7) & mask)
		at += width
	}
	for ; i < len(dst); i++ {
		dst[i] = int32(load(b, at>>3) >> (at & 7) & mask)
		at += width
	}
	return at
}

// bitPackedLevels decodes levels of the deprecated encoding BIT_PACKED: each begins at the highest
// bit that is left of a byte. It returns how many bytes they take.
func bitPackedLevels(dst []uint8, b []byte, most uint8) (int, error) {
	width := bits.Len8(most)
	size := (len(dst)*width + 7) / 8
	if size > len(b) {
		return 0, errLevelsShort
	}
	at := 0
	for i := range dst {
		v := uint8(0)
		for range width {
			v = v<<1 | b[at>>3]>>(7-at&7)&1
			at++
		}
		if v > most {
			return 0, damaged("a level is %d, and the schema has at most %d", v, most)
		}
		dst[i] = v
	}
	return size, nil
}
