package lc0

import (
	"encoding/binary"

	"golang.org/x/sys/cpu"
)

// expand writes an element of elementBytes, 0 or 1, for each bit of planes, the highest bit of a
// byte first. planes must be whole planes of 64 bits, and dst must have room for all elements.
func (t *tables) expand(dst, planes []byte, elementBytes int) {
	if !cpu.X86.HasAVX2 {
		t.expandByTable(dst, planes, elementBytes)
		return
	}
	n := len(planes) / planeBytes
	if n > 0 {
		_ = dst[n*squares*elementBytes-1]
		expandAVX2(&dst[0], &planes[0], n, elementBytes, &t.patterns[elementBytes])
	}
}

// vectorBytes is the size of the processor's vectors.
const vectorBytes = 32

// pattern is used to make the vectors of elements of a plane, which takes as many pairs of vectors
// as an element has bytes. All bytes of an element are made in the same way:
//
//	byte of the plane that has its square's row ──► and bits ──► all ones, if that is bits ──► and one
type pattern struct {
	bits [vectorBytes]byte    // the bit of the square
	one  [vectorBytes]byte    // elements that are 1
	rows [8][vectorBytes]byte // for each vector: which byte of the plane
}

// patterns is indexed by the bytes of an element: 1, 2 and 4.
type patterns [5]pattern

func newPatterns() (patterns patterns) {
	le := binary.LittleEndian
	for size, one := range map[int][]byte{1: {1}, 2: le.AppendUint16(nil, half1), 4: le.AppendUint32(nil, float1)} {
		p := &patterns[size]
		for i := range vectorBytes {
			p.bits[i] = 0x80 >> (i / size % 8)
			p.one[i] = one[i%size]
			for v := range 2 * size {
				p.rows[v][i] = byte((v*vectorBytes + i) / size / 8)
			}
		}
	}
	return patterns
}

// expandAVX2 expands n planes, n above 0.
//
//go:noescape
func expandAVX2(dst, planes *byte, n, elementBytes int, p *pattern)
