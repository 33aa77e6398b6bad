package inflate

import "encoding/binary"

// bitReader takes bits from a slice. Bits above count are the bits that follow, or 0: or-ing the
// same bits in again later changes nothing.
type bitReader struct {
	in    []byte
	at    int // index of the first byte none of whose bits are counted
	bits  uint64
	count uint   // below 64
	extra uint64 // the extra bits of the symbol that was looked up last
}

// fill makes count at least 56, or takes everything that is left.
func (b *bitReader) fill() {
	if len(b.in)-b.at >= 8 {
		b.bits |= binary.LittleEndian.Uint64(b.in[b.at:]) << (b.count & 63)
		b.at += int(63-b.count) >> 3
		b.count |= 56
		return
	}
	for b.count < 56 && b.at < len(b.in) {
		b.bits |= uint64(b.in[b.at]) << (b.count & 63)
		b.at++
		b.count += 8
	}
}

// drop discards n bits, which must be there.
func (b *bitReader) drop(n uint) {
	b.bits >>= n & 63
	b.count -= n
}

// giveBack returns whole unused bytes to the input.
func (b *bitReader) giveBack() {
	n := int(b.count >> 3)
	b.at -= n
	b.count -= 8 * uint(n)
	b.bits &= 1<<(b.count&63) - 1
}
