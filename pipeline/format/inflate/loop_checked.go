package inflate

import (
	"encoding/binary"
)

// loopChecked decodes symbols as long as there are slackIn bytes of input and room in the window.
// The caller guarantees 8 bytes more, so that it decodes at least one symbol. It returns more, End
// after the block's end, or Bad.
//
// It is the version that the compiler checks: no index can be outside a slice.
func (d *Decoder) loopChecked(b *bitReader) Status {
	in, lits, dists, window := b.in, &d.litTable, &d.distTable, &d.window
	at, bits, count := b.at, b.bits, uint64(b.count)
	op := d.end
	atEnd := len(in) - slackIn
	s := more
	start := count // before the symbol that is not a literal in the first table
	bits |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
	at += int(^count >> 3 & 7)
	count |= 56
	e := lits[bits&(1<<litTableBits-1)]
	for at <= atEnd && op < windowEnd {
		// There are at least 56 bits, and e is the entry of the first ones.
		if d.flat {
			const mask, want = literal | entryBits, literal | 8
			e1, e2, e3 := lits[bits>>8&(1<<litTableBits-1)], lits[bits>>16&(1<<litTableBits-1)], lits[bits>>24&(1<<litTableBits-1)]
			if ((e^want)|(e1^want)|(e2^want)|(e3^want))&mask == 0 {
				binary.LittleEndian.PutUint32(window[op:], e>>16&0xff|e1>>8&0xff00|e2&0xff0000|e3<<8&0xff000000)
				op += 4
				bits >>= 32
				count -= 32
				bits |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
				at += int(^count >> 3 & 7)
				count |= 56
				e = lits[bits&(1<<litTableBits-1)]
				continue
			}
		}
		if e&literal != 0 {
			bits >>= e & 63
			count -= uint64(e)
			window[op] = byte(e >> 16)
			op++
			e = lits[bits&(1<<litTableBits-1)]
			if e&literal != 0 {
				bits >>= e & 63
				count -= uint64(e)
				window[op] = byte(e >> 16)
				op++
				e = lits[bits&(1<<litTableBits-1)]
				if e&literal != 0 {
					bits >>= e & 63
					count -= uint64(e)
					window[op] = byte(e >> 16)
					op++
					e = lits[bits&(1<<litTableBits-1)]
				}
			}
			bits |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
			at += int(^count >> 3 & 7)
			count |= 56
			if e&literal != 0 {
				continue
			}
		}
		start = count
		if e&exceptional != 0 {
			if e&second != 0 {
				bits >>= e & 63
				count -= uint64(e)
				e = lits[(uint64(e>>16)+bits&(1<<(e>>8&15)-1))&(litTableSize-1)]
			}
			if e&literal != 0 {
				bits >>= e & 63
				count -= uint64(e)
				window[op] = byte(e >> 16)
				op++
				bits |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
				at += int(^count >> 3 & 7)
				count |= 56
				e = lits[bits&(1<<litTableBits-1)]
				continue
			}
			if e&exceptional != 0 {
				bits >>= e & 63
				count -= uint64(e & 63)
				s = Bad
				if e&blockEnd != 0 {
					s = End
				}
				break
			}
		}
		length := int(e>>entryBase&0x1ff) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		count -= uint64(e)
		e = dists[bits&(1<<distTableBits-1)]
		if e&exceptional != 0 {
			if e&second != 0 {
				bits >>= e & 63
				count -= uint64(e)
				e = dists[(uint64(e>>16)+bits&(1<<(e>>8&15)-1))&(distTableSize-1)]
			}
			if e&exceptional != 0 {
				bits >>= e & 63
				count -= uint64(e & 63)
				s = Bad
				break
			}
		}
		distance := int(e>>entryBase) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits >>= e & 63
		count -= uint64(e)
		if distance > op {
			s = Bad
			break
		}
		bits |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
		at += int(^count >> 3 & 7)
		count |= 56
		e = lits[bits&(1<<litTableBits-1)]
		copyMatch(window, op, distance, length)
		op += length
	}
	d.end = op
	b.at, b.bits, b.count = at, bits, uint(count&63)
	if s == Bad { // the bits of an end of block would have been inspected
		b.count = min(b.count, uint(start&63)-d.endBits)
	}
	b.giveBack()
	return s
}

// copyMatch copies length bytes to window[op:] from distance bytes before, and up to 15 more, with
// the same result as copying byte by byte.
func copyMatch(window *[windowEnd + slackOut]byte, op, distance, length int) {
	from, end := op-distance, op+length
	switch {
	case distance >= 16:
		for op < end {
			copy(window[op:op+16], window[from:from+16])
			op, from = op+16, from+16
		}
	case distance >= 8:
		for op < end {
			binary.LittleEndian.PutUint64(window[op:], binary.LittleEndian.Uint64(window[from:]))
			op, from = op+8, from+8
		}
	default: // a period of 8 bytes or more is written first, if length allows it
		for op < end && op-from < 8 {
			n := copy(window[op:op+op-from], window[from:op])
			op += n
		}
		for op < end {
			binary.LittleEndian.PutUint64(window[op:], binary.LittleEndian.Uint64(window[from:]))
			op, from = op+8, from+8
		}
	}
}

// symbol decodes one symbol, a match together with its distance, if all of its bits are available.
// It is for the last bytes of an input, where the loop would read beyond them. d.end must be below
// windowEnd.
func (d *Decoder) symbol(in *bitReader) Status {
	b := *in
	b.fill()
	if b.count < d.endBits { // the rest of the block must have more bits
		return Input
	}
	least := 8*b.at - int(b.count) + int(d.endBits)
	e, s := lookUp(&b, d.litTable[b.bits&(1<<litTableBits-1)], d.litTable[:])
	if s != more {
		return in.ended(b, s, least)
	}
	base := int(e >> entryBase & 0x1ff)
	if e&literal != 0 {
		*in = b
		d.window[d.end] = byte(base)
		d.end++
		return more
	}
	length := base + int(b.extra)
	b.fill()
	e, s = lookUp(&b, d.distTable[b.bits&(1<<distTableBits-1)], d.distTable[:])
	if s != more {
		return in.ended(b, s, least)
	}
	distance := int(e>>entryBase) + int(b.extra)
	if distance > d.end {
		return in.ended(b, Bad, least)
	}
	*in = b
	for range length {
		d.window[d.end] = d.window[d.end-distance]
		d.end++
	}
	return more
}

// ended sets b if no symbol was decoded: unchanged for Input, else to now, after the bits that were
// consumed. For a bad symbol these are at least the bits up to least, a bit position in the input,
// because those of the block's end would have been inspected.
func (b *bitReader) ended(now bitReader, s Status, least int) Status {
	if s == Input {
		return s
	}
	if n := least - (8*now.at - int(now.count)); s == Bad && n > 0 {
		now.drop(uint(n))
	}
	*b = now
	return s
}

// lookUp consumes the bits of an entry, in its second table if it has one, and sets b.extra.
func lookUp(b *bitReader, e uint32, table []uint32) (uint32, Status) {
	if e&exceptional != 0 && e&second != 0 {
		n := uint(e & entryBits)
		if n > b.count {
			return e, Input
		}
		b.drop(n)
		e = table[e>>entryBase+uint32(b.bits&(1<<(e>>8&15)-1))]
	}
	n := uint(e & entryBits)
	if n > b.count {
		return e, Input
	}
	if e&exceptional != 0 {
		b.drop(n)
		if e&blockEnd != 0 {
			return e, End
		}
		return e, Bad
	}
	b.extra = b.bits & (1<<n - 1) >> (e >> 8 & 15)
	b.drop(n)
	return e, more
}
