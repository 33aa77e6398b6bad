package lc0

import "encoding/binary"

// Elements of the eight squares of a row, for each possible byte of a row: the highest bit is the
// first square.
var (
	rows1 [256]uint64
	rows2 [256][2]uint64
	rows4 [256][4]uint64
)

const float1 = 0x3f800000 // 1 as float32

func init() {
	for b := range 256 {
		for s := range 8 {
			if b>>(7-s)&1 != 0 {
				rows1[b] |= 1 << (8 * s)
				rows2[b][s/4] |= half1 << (16 * (s % 4))
				rows4[b][s/2] |= float1 << (32 * (s % 2))
			}
		}
	}
}

// expandByTable is expand for any processor.
func expandByTable(dst, planes []byte, elementBytes int) {
	le := binary.LittleEndian
	for i := range len(planes) / planeBytes {
		plane := planes[i*planeBytes:][:planeBytes]
		switch elementBytes {
		case 1:
			out := dst[i*squares:][:squares] // whole planes, so that the compiler can drop bounds checks
			le.PutUint64(out[0:8], rows1[plane[0]])
			le.PutUint64(out[8:16], rows1[plane[1]])
			le.PutUint64(out[16:24], rows1[plane[2]])
			le.PutUint64(out[24:32], rows1[plane[3]])
			le.PutUint64(out[32:40], rows1[plane[4]])
			le.PutUint64(out[40:48], rows1[plane[5]])
			le.PutUint64(out[48:56], rows1[plane[6]])
			le.PutUint64(out[56:64], rows1[plane[7]])
		case 2:
			out := dst[i*2*squares:][:2*squares]
			for r, b := range plane {
				row, to := &rows2[b], out[16*r:][:16]
				le.PutUint64(to[0:8], row[0])
				le.PutUint64(to[8:16], row[1])
			}
		default:
			out := dst[i*4*squares:][:4*squares]
			for r, b := range plane {
				row, to := &rows4[b], out[32*r:][:32]
				le.PutUint64(to[0:8], row[0])
				le.PutUint64(to[8:16], row[1])
				le.PutUint64(to[16:24], row[2])
				le.PutUint64(to[24:32], row[3])
			}
		}
	}
}
