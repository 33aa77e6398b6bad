package lc0

import (
	"encoding/binary"
	"math"
)

// Elements of the eight squares of a row, for each of the bytes that a row can be: the
// highest bit is the first square.
var (
	rows1 [256]uint64
	rows2 [256][2]uint64
	rows4 [256][4]uint64
)

// Elements for numbers from 0 to 255, as they are, and divided by 99 and by 100.
var (
	halves   [256]uint16
	shares2  [2][256]uint16
	hundreds = [2]float32{99, 100}
)

const (
	half1  = 0x3c00 // 1 as float16
	float1 = 0x3f800000
)

func init() {
	for b := range 256 {
		for s := range 8 {
			if b>>(7-s)&1 != 0 {
				rows1[b] |= 1 << (8 * s)
				rows2[b][s/4] |= half1 << (16 * (s % 4))
				rows4[b][s/2] |= float1 << (32 * (s % 2))
			}
		}
		halves[b] = half(float32(b))
		for i, by := range hundreds {
			shares2[i][b] = half(float32(b) / by)
		}
	}
}

// half rounds a number from 0 to 65504 to float16, to the nearest, ties to even.
func half(f float32) uint16 {
	bits := math.Float32bits(f)
	exponent := int(bits>>23) - 127
	mantissa := bits&(1<<23-1) | 1<<23
	shift := uint(13) // of a normal number
	if exponent < -14 {
		shift += uint(-14 - exponent)
	}
	if bits == 0 || shift > 24 {
		return 0
	}
	kept, rest, tie := mantissa>>shift, mantissa&(1<<shift-1), uint32(1)<<(shift-1)
	if rest > tie || rest == tie && kept&1 != 0 {
		kept++ // into the exponent, where the mantissa is full
	}
	if exponent < -14 {
		return uint16(kept)
	}
	return uint16(kept) + uint16(exponent+14)<<10 // kept has the exponent's lowest bit
}

func (p *parted) present1(dst []byte) {
	for i := range bitPlanes { // whole planes, which the compiler sees to lie within both
		in, out := p.planes[8*i:8*i+8], dst[squares*i:squares*i+squares]
		binary.LittleEndian.PutUint64(out[0:8], rows1[in[0]])
		binary.LittleEndian.PutUint64(out[8:16], rows1[in[1]])
		binary.LittleEndian.PutUint64(out[16:24], rows1[in[2]])
		binary.LittleEndian.PutUint64(out[24:32], rows1[in[3]])
		binary.LittleEndian.PutUint64(out[32:40], rows1[in[4]])
		binary.LittleEndian.PutUint64(out[40:48], rows1[in[5]])
		binary.LittleEndian.PutUint64(out[48:56], rows1[in[6]])
		binary.LittleEndian.PutUint64(out[56:64], rows1[in[7]])
	}
	dst = dst[bitPlanes*squares:]
	for i, f := range p.flagPlanes() {
		plane := dst[i*squares : (i+1)*squares]
		fill1(plane, f.value)
		if f.rows {
			binary.LittleEndian.PutUint64(plane, rows1[low(f.first)])
			binary.LittleEndian.PutUint64(plane[7*8:], rows1[low(f.last)])
		}
	}
	count, _ := p.halfMoves()
	fill1(dst[5*squares:6*squares], count)
	fill1(dst[6*squares:7*squares], p.plane110())
	fill1(dst[7*squares:], 1)
}

// plane110 is the value of that plane.
func (p *parted) plane110() byte {
	if p.armageddon() {
		return 1
	}
	return 0
}

func fill1(plane []byte, v byte) {
	word := uint64(v) * 0x0101010101010101
	for i := 0; i < len(plane); i += 8 {
		binary.LittleEndian.PutUint64(plane[i:], word)
	}
}

func (p *parted) present2(dst []byte) {
	put := func(at []byte, row [2]uint64) {
		binary.LittleEndian.PutUint64(at, row[0])
		binary.LittleEndian.PutUint64(at[8:], row[1])
	}
	const row, plane = 2 * 8, 2 * squares
	for i, b := range p.planes {
		put(dst[row*i:], rows2[b])
	}
	dst = dst[bitPlanes*plane:]
	fill := func(i int, v uint16) {
		word := uint64(v) * 0x0001000100010001
		for r := range 8 {
			put(dst[i*plane+r*row:], [2]uint64{word, word})
		}
	}
	for i, f := range p.flagPlanes() {
		fill(i, halves[f.value])
		if f.rows {
			put(dst[i*plane:], rows2[low(f.first)])
			put(dst[i*plane+7*row:], rows2[low(f.last)])
		}
	}
	count, by := p.halfMoves()
	fill(5, shares2[int(by)-99][count])
	fill(6, halves[p.plane110()])
	fill(7, half1)
}

func (p *parted) present4(dst []byte) {
	put := func(at []byte, row [4]uint64) {
		for i, word := range row {
			binary.LittleEndian.PutUint64(at[8*i:], word)
		}
	}
	const row, plane = 4 * 8, 4 * squares
	for i, b := range p.planes {
		put(dst[row*i:], rows4[b])
	}
	dst = dst[bitPlanes*plane:]
	fill := func(i int, v float32) {
		word := uint64(math.Float32bits(v)) * 0x0000000100000001
		for r := range 8 {
			put(dst[i*plane+r*row:], [4]uint64{word, word, word, word})
		}
	}
	for i, f := range p.flagPlanes() {
		fill(i, float32(f.value))
		if f.rows {
			put(dst[i*plane:], rows4[low(f.first)])
			put(dst[i*plane+7*row:], rows4[low(f.last)])
		}
	}
	count, by := p.halfMoves()
	fill(5, float32(count)/by)
	fill(6, float32(p.plane110()))
	fill(7, 1)
}
