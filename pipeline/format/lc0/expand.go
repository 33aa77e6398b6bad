package lc0

import (
	"encoding/binary"
	"sync"
)

// tables are what Tensors looks up instead of computing it for each frame.
type tables struct {
	// Elements of the eight squares of a row, for each possible byte of a row: the highest bit is
	// the first square.
	rows1 [256]uint64
	rows2 [256][2]uint64
	rows4 [256][4]uint64
	// Numbers from 0 to 255 as float16, unchanged, and divided by 99 and by 100.
	halves [256]uint16
	shares [2][256]uint16

	patterns patterns
}

const float1 = 0x3f800000 // 1 as float32

var sharedTables = sync.OnceValue(func() *tables {
	t := &tables{patterns: newPatterns()}
	for b := range 256 {
		for s := range 8 {
			if b>>(7-s)&1 != 0 {
				t.rows1[b] |= 1 << (8 * s)
				t.rows2[b][s/4] |= half1 << (16 * (s % 4))
				t.rows4[b][s/2] |= float1 << (32 * (s % 2))
			}
		}
		t.halves[b] = half(float32(b))
		for i, by := range [2]float32{99, 100} {
			t.shares[i][b] = half(float32(b) / by)
		}
	}
	return t
})

// expandByTable is expand for any processor.
func (t *tables) expandByTable(dst, planes []byte, elementBytes int) {
	le := binary.LittleEndian
	for i := range len(planes) / planeBytes {
		plane := planes[i*planeBytes:][:planeBytes]
		switch elementBytes {
		case 1:
			out := dst[i*squares:][:squares] // whole planes, so that the compiler can drop bounds checks
			le.PutUint64(out[0:8], t.rows1[plane[0]])
			le.PutUint64(out[8:16], t.rows1[plane[1]])
			le.PutUint64(out[16:24], t.rows1[plane[2]])
			le.PutUint64(out[24:32], t.rows1[plane[3]])
			le.PutUint64(out[32:40], t.rows1[plane[4]])
			le.PutUint64(out[40:48], t.rows1[plane[5]])
			le.PutUint64(out[48:56], t.rows1[plane[6]])
			le.PutUint64(out[56:64], t.rows1[plane[7]])
		case 2:
			out := dst[i*2*squares:][:2*squares]
			for r, b := range plane {
				row, to := &t.rows2[b], out[16*r:][:16]
				le.PutUint64(to[0:8], row[0])
				le.PutUint64(to[8:16], row[1])
			}
		default:
			out := dst[i*4*squares:][:4*squares]
			for r, b := range plane {
				row, to := &t.rows4[b], out[32*r:][:32]
				le.PutUint64(to[0:8], row[0])
				le.PutUint64(to[8:16], row[1])
				le.PutUint64(to[16:24], row[2])
				le.PutUint64(to[24:32], row[3])
			}
		}
	}
}
