package zarr

import (
	"encoding/binary"
	"math"
)

// floatBytes is the size of a converted element.
const floatBytes = 4

// nanBits are the bits of the only NaN that conversions produce. What arithmetic makes of a NaN
// differs between processors.
const nanBits = 0x7fc00000

// conversion converts elements to float32 as described by a Packing. It is immutable, and safe for
// concurrent use.
type conversion struct {
	class         class
	item          int
	scale, offset float32
	missing       []uint64 // bits of elements
	lanes         lanes
	table         *[256]float32 // for elements of one byte, all results
	// reorder copies elements that are not little-endian, or not adjacent.
	reorder Copier
}

func newConversion(p *Packing) *conversion {
	c := &conversion{class: p.Type.class, item: p.Type.ItemBytes, scale: p.Scale, offset: p.Offset}
	c.reorder.item = int64(c.item)
	if p.Type.Big() {
		c.reorder.units = p.Type.Units
	}
	for _, m := range p.Missing {
		var wide [8]byte
		copy(wide[:], m)
		c.missing = append(c.missing, binary.LittleEndian.Uint64(wide[:]))
	}
	if c.item == 1 {
		c.fillTable()
	}
	c.lanes.fill(c)
	return c
}

// lanes are the operands for 4 elements at once: scale, offset, the bits of the first missing
// element, all ones if there is one, and NaN.
type lanes [5][4]uint32

func (l *lanes) fill(c *conversion) {
	var missing, use uint32
	var high uint32 // the upper half, if elements have 8 bytes
	if len(c.missing) > 0 {
		use, missing, high = math.MaxUint32, uint32(c.missing[0]), uint32(c.missing[0]>>32)
		switch c.item {
		case 1:
			missing *= 0x01010101
		case 2:
			missing *= 0x00010001
		}
	}
	for i := range 4 {
		l[0][i], l[1][i] = math.Float32bits(c.scale), math.Float32bits(c.offset)
		l[2][i], l[3][i], l[4][i] = missing, use, nanBits
		if c.item == 8 && i%2 == 1 {
			l[2][i] = high
		}
	}
}

// fillTable converts all values of one byte.
func (c *conversion) fillTable() {
	c.table = new([256]float32)
	for i := range c.table {
		x := float32(i)
		switch {
		case c.class == anInt:
			x = float32(int8(i))
		case c.class == aBool && i > 0:
			x = 1
		}
		c.table[i] = float32(x*c.scale) + c.offset
	}
	for _, m := range c.missing {
		c.table[m] = math.Float32frombits(nanBits)
	}
}

// aside is how many elements are reordered at a time.
const aside = 64

// run converts n elements that are srcStep bytes apart to numbers dstStep bytes apart. dst and src
// hold all of them.
func (c *conversion) run(dst, src []byte, n, dstStep, srcStep int) {
	if c.reorder.units == nil && dstStep == floatBytes && srcStep == c.item {
		c.convert(dst, src, n)
		return
	}
	var in [aside * 8]byte
	var out [aside * floatBytes]byte
	for n > 0 {
		some := min(n, aside)
		c.reorder.gather(in[:], src, some, c.item, srcStep)
		if dstStep == floatBytes {
			c.convert(dst, in[:], some)
		} else {
			c.convert(out[:], in[:], some)
			for i := range some {
				copy(dst[i*dstStep:i*dstStep+floatBytes], out[i*floatBytes:])
			}
		}
		if n -= some; n > 0 {
			dst, src = dst[some*dstStep:], src[some*srcStep:]
		}
	}
}

// convert converts n adjacent little-endian elements. Floats that are NaN stay NaN, and no others
// become NaN: Scale is finite and not 0, and Offset is finite.
func (c *conversion) convert(dst, src []byte, n int) {
	dst, src = dst[:n*floatBytes], src[:n*c.item]
	done := c.convertFast(dst, src, n)
	if done > 0 && len(c.missing) > 1 {
		blank(dst[:done*floatBytes], src[:done*c.item], c.item, c.missing[1:])
	}
	dst, src = dst[done*floatBytes:], src[done*c.item:]
	if c.table != nil {
		for i, b := range src {
			put(dst[i*floatBytes:], c.table[b])
		}
		return
	}
	c.convertSlow(dst, src)
	blank(dst, src, c.item, c.missing)
}

// convertSlow is convert without missing elements and elements of one byte.
func (c *conversion) convertSlow(dst, src []byte) {
	scale, offset := c.scale, c.offset
	switch {
	case c.class == anInt && c.item == 2:
		for ; len(src) >= 2 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[2:] {
			put(dst, float32(float32(int16(binary.LittleEndian.Uint16(src)))*scale)+offset)
		}
	case c.class == anInt && c.item == 4:
		for ; len(src) >= 4 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[4:] {
			put(dst, float32(float32(int32(binary.LittleEndian.Uint32(src)))*scale)+offset)
		}
	case c.class == anInt:
		for ; len(src) >= 8 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[8:] {
			put(dst, float32(float32(int64(binary.LittleEndian.Uint64(src)))*scale)+offset)
		}
	case c.class == aUint && c.item == 2:
		for ; len(src) >= 2 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[2:] {
			put(dst, float32(float32(binary.LittleEndian.Uint16(src))*scale)+offset)
		}
	case c.class == aUint && c.item == 4:
		for ; len(src) >= 4 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[4:] {
			put(dst, float32(float32(binary.LittleEndian.Uint32(src))*scale)+offset)
		}
	case c.class == aUint:
		for ; len(src) >= 8 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[8:] {
			put(dst, float32(float32(binary.LittleEndian.Uint64(src))*scale)+offset)
		}
	case c.class == aBrainFloat:
		for ; len(src) >= 2 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[2:] {
			put(dst, scaled(math.Float32frombits(uint32(binary.LittleEndian.Uint16(src))<<16), scale, offset))
		}
	case c.item == 2:
		for ; len(src) >= 2 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[2:] {
			put(dst, scaled(halfFloat(binary.LittleEndian.Uint16(src)), scale, offset))
		}
	case c.item == 4:
		for ; len(src) >= 4 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[4:] {
			put(dst, scaled(math.Float32frombits(binary.LittleEndian.Uint32(src)), scale, offset))
		}
	default:
		for ; len(src) >= 8 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[8:] {
			put(dst, scaled(float32(math.Float64frombits(binary.LittleEndian.Uint64(src))), scale, offset))
		}
	}
}

func put(dst []byte, x float32) { binary.LittleEndian.PutUint32(dst, math.Float32bits(x)) }

// scaled converts a float32.
func scaled(x, scale, offset float32) float32 {
	if x != x {
		return math.Float32frombits(nanBits)
	}
	return float32(x*scale) + offset
}

// blank replaces the results of missing elements by NaN.
func blank(dst, src []byte, item int, missing []uint64) {
	le := binary.LittleEndian
	for _, m := range missing {
		dst, src := dst, src
		switch item {
		case 1:
			for ; len(src) >= 1 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[1:] {
				if src[0] == byte(m) {
					le.PutUint32(dst, nanBits)
				}
			}
		case 2:
			for ; len(src) >= 2 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[2:] {
				if le.Uint16(src) == uint16(m) {
					le.PutUint32(dst, nanBits)
				}
			}
		case 4:
			for ; len(src) >= 4 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[4:] {
				if le.Uint32(src) == uint32(m) {
					le.PutUint32(dst, nanBits)
				}
			}
		case 8:
			for ; len(src) >= 8 && len(dst) >= floatBytes; dst, src = dst[floatBytes:], src[8:] {
				if le.Uint64(src) == m {
					le.PutUint32(dst, nanBits)
				}
			}
		}
	}
}

// halfFloat converts a float16 to float32, which is exact.
func halfFloat(h uint16) float32 {
	// With its exponent bits in the place of a float32's, the value is 2¹¹² times too small.
	x := math.Float32bits(math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112)
	if h&0x7c00 == 0x7c00 { // infinity or NaN
		x |= 0x7f800000
	}
	return math.Float32frombits(x | uint32(h>>15)<<31)
}

// convert converts the elements of each pass of the innermost loop, from loop i on. dst and src
// hold all of them.
func (w *walk) convert(dst, src []byte, i int, c *conversion) {
	l := w.loops[i]
	if i == w.n-1 {
		c.run(dst, src, int(l.count), int(l.crop), int(l.chunk))
		return
	}
	to, from := 0, 0
	for range l.count {
		w.convert(dst[to:], src[from:], i+1, c)
		to, from = to+int(l.crop), from+int(l.chunk)
	}
}

// convertClipped converts those elements of a loop that are in the chunk's window, as far as they
// are in the crop's window.
func (c *Copier) convertClipped(crop, chunk Window, to, from int64, l loop) {
	first, n := int64(0), l.count
	if skip := chunk.OffsetBytes - from; skip > 0 {
		first = (skip + l.chunk - 1) / l.chunk
	}
	if skip := crop.OffsetBytes - floatBytes + 1 - to; skip > 0 { // some of its bytes are enough
		first = max(first, (skip+l.crop-1)/l.crop)
	}
	if room := chunk.end() - c.item - from; room >= 0 {
		n = min(n, room/l.chunk+1)
	} else {
		n = 0
	}
	if room := crop.end() - 1 - to; room >= 0 {
		n = min(n, room/l.crop+1)
	} else {
		n = 0
	}
	for ; first < n; first++ { // the first may be cut
		at := to + first*l.crop
		if crop.has(at, at+floatBytes) {
			break
		}
		c.convertOne(crop, chunk, at, from+first*l.chunk)
	}
	for ; first < n; n-- { // and the last
		at := to + (n-1)*l.crop
		if crop.has(at, at+floatBytes) {
			break
		}
		c.convertOne(crop, chunk, at, from+(n-1)*l.chunk)
	}
	if first < n {
		dst, src := crop.Bytes[to+first*l.crop-crop.OffsetBytes:], chunk.Bytes[from+first*l.chunk-chunk.OffsetBytes:]
		c.as.run(dst, src, int(n-first), int(l.crop), int(l.chunk))
	}
}

// convertOne copies the part of one converted element that is in the crop's window.
func (c *Copier) convertOne(crop, chunk Window, to, from int64) {
	var one [floatBytes]byte
	c.as.run(one[:], chunk.Bytes[from-chunk.OffsetBytes:], 1, floatBytes, int(c.item))
	copyClipped(crop, Window{one[:], to}, to, to, floatBytes)
}
