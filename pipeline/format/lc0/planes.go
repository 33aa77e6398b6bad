package lc0

import (
	"encoding/binary"
	"math"
)

const (
	rowsOfPlane = 8
	planeBytes  = squares / 8 // of a plane of bits: a byte per row, whose highest bit is the first square
	lastPlanes  = planes - bitPlanes
	half1       = 0x3c00 // 1 as float16
)

// half rounds a number from 0 to 65504 to float16, to the nearest, ties to even.
func half(f float32) uint16 {
	bits := math.Float32bits(f)
	exponent := int(bits>>23) - 127
	mantissa := bits&(1<<23-1) | 1<<23
	shift := uint(13) // for a normal number
	if exponent < -14 {
		shift += uint(-14 - exponent)
	}
	if bits == 0 || shift > 24 {
		return 0
	}
	kept, rest, tie := mantissa>>shift, mantissa&(1<<shift-1), uint32(1)<<(shift-1)
	if rest > tie || rest == tie && kept&1 != 0 {
		kept++ // carries into the exponent if the mantissa is full
	}
	if exponent < -14 {
		return uint16(kept)
	}
	return uint16(kept) + uint16(exponent+14)<<10 // kept contains the exponent's lowest bit
}

// number returns eight bytes of elements that are a number.
func (t Tensors) number(n byte) uint64 {
	switch t.element {
	case U1:
		return uint64(n) * 0x0101010101010101
	case F2:
		return uint64(t.tables.halves[n]) * 0x0001000100010001
	}
	return uint64(math.Float32bits(float32(n))) * 0x0000000100000001
}

// share returns eight bytes of elements that are a number divided by 99 or 100; for U1, undivided.
func (t Tensors) share(n byte, by float32) uint64 {
	switch t.element {
	case U1:
		return t.number(n)
	case F2:
		return uint64(t.tables.shares[int(by)-99][n]) * 0x0001000100010001
	}
	return uint64(math.Float32bits(float32(n)/by)) * 0x0000000100000001
}

// presentPlanes writes all planes.
func (t Tensors) presentPlanes(dst []byte, p *parted) {
	bytes := t.elementBytes()
	t.tables.expand(dst[:bitPlanes*squares*bytes], p.planes, bytes)
	dst = dst[bitPlanes*squares*bytes:]
	bits, values := p.lastPlanes()
	t.tables.expand(dst, bits[:], bytes)
	fill := func(i int, word uint64) {
		for plane := dst[i*squares*bytes : (i+1)*squares*bytes]; len(plane) >= 8; plane = plane[8:] {
			binary.LittleEndian.PutUint64(plane, word)
		}
	}
	for i, v := range values {
		if v > 1 { // 0 and 1 were written as bits
			fill(i, t.number(v))
		}
	}
	fill(planeOfHalfMoves-bitPlanes, t.share(p.halfMoves()))
}

// Indexes of some of the last planes.
const (
	planeOfHalfMoves  = 109
	planeOfArmageddon = 110
	planeOfOnes       = 111
)

// lastPlanes returns the planes from 104 on: the bits of each, and the values of those that have
// the same number everywhere. If the number is 0 or 1, the bits have it too. The plane of
// half-moves is left out.
func (p *parted) lastPlanes() (bits [lastPlanes * planeBytes]byte, values [lastPlanes]byte) {
	for i, f := range p.flagPlanes() {
		if f.rows {
			bits[i*planeBytes], bits[i*planeBytes+rowsOfPlane-1] = low(f.first), low(f.last)
		} else {
			values[i] = f.value
		}
	}
	values[planeOfOnes-bitPlanes] = 1
	if p.armageddon() {
		values[planeOfArmageddon-bitPlanes] = 1
	}
	for i, v := range values {
		if v == 1 {
			binary.LittleEndian.PutUint64(bits[i*planeBytes:], math.MaxUint64)
		}
	}
	return bits, values
}
