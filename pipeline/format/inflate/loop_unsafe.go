//go:build (amd64 || arm64) && !inflate_checked

package inflate

import "unsafe"

// unsafeLoop is whether loop is implemented: on little-endian processors that load and store words
// at any address.
const unsafeLoop = true

// The loop's reads and writes through pointers are within bounds, for these reasons:
//
//	in      at <= len(in)-slackIn when an iteration begins. An iteration loads at most three times,
//	        each 8 bytes, at most 7 bytes after the previous load.
//	window  op < windowEnd when an iteration begins. An iteration writes three literals, a word of
//	        four, or a match of at most 258 bytes plus, for its last piece, less than 32 more: below
//	        slackOut. A match begins at op-distance, and distance <= op was checked.
//	tables  indices are masked with the constant size.
func load64(p unsafe.Pointer, at int) uint64     { return *(*uint64)(unsafe.Add(p, at)) }
func store64(p unsafe.Pointer, at int, v uint64) { *(*uint64)(unsafe.Add(p, at)) = v }
func move16(p unsafe.Pointer, to, from int) {
	*(*[16]byte)(unsafe.Add(p, to)) = *(*[16]byte)(unsafe.Add(p, from))
}
func store32(p unsafe.Pointer, at int, v uint32) { *(*uint32)(unsafe.Add(p, at)) = v }
func storeByte(p unsafe.Pointer, at int, e uint32) {
	*(*byte)(unsafe.Add(p, at)) = byte(e >> entryBase)
}

// loop is loopChecked without the compiler's checks. It begins and ends in the same way.
func (d *Decoder) loop(b *bitReader) Status {
	lits, dists := &d.litTable, &d.distTable
	in, window := unsafe.Pointer(unsafe.SliceData(b.in)), unsafe.Pointer(&d.window)
	at, bits, count := b.at, b.bits, uint64(b.count)
	op := d.end
	atEnd := len(b.in) - slackIn
	flat := d.flat
	s := more
	start := count // before the symbol that is not a literal in the first table
	bits |= load64(in, at) << (count & 63)
	at += int(^count >> 3 & 7)
	count |= 56
	e := lits[bits&(1<<litTableBits-1)]
	for at <= atEnd && op < windowEnd {
		// There are at least 56 bits, and e is the entry of the first ones.
		if flat {
			const mask, want = literal | entryBits, literal | 8
			e1, e2, e3 := lits[bits>>8&(1<<litTableBits-1)], lits[bits>>16&(1<<litTableBits-1)], lits[bits>>24&(1<<litTableBits-1)]
			if ((e^want)|(e1^want)|(e2^want)|(e3^want))&mask == 0 {
				store32(window, op, e>>16&0xff|e1>>8&0xff00|e2&0xff0000|e3<<8&0xff000000)
				op += 4
				bits >>= 32
				count -= 32
				bits |= load64(in, at) << (count & 63)
				at += int(^count >> 3 & 7)
				count |= 56
				e = lits[bits&(1<<litTableBits-1)]
				continue
			}
		}
		if e&literal != 0 {
			bits >>= e & 63
			count -= uint64(e)
			storeByte(window, op, e)
			op++
			e = lits[bits&(1<<litTableBits-1)]
			if e&literal != 0 {
				bits >>= e & 63
				count -= uint64(e)
				storeByte(window, op, e)
				op++
				e = lits[bits&(1<<litTableBits-1)]
				if e&literal != 0 {
					bits >>= e & 63
					count -= uint64(e)
					storeByte(window, op, e)
					op++
					e = lits[bits&(1<<litTableBits-1)]
				}
			}
			bits |= load64(in, at) << (count & 63)
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
				storeByte(window, op, e)
				op++
				bits |= load64(in, at) << (count & 63)
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
		bits |= load64(in, at) << (count & 63)
		at += int(^count >> 3 & 7)
		count |= 56
		e = lits[bits&(1<<litTableBits-1)]

		end := op + length
		switch {
		case distance >= 16:
			from := op - distance
			move16(window, op, from)
			move16(window, op+16, from+16)
			for op += 32; op < end; op += 32 {
				from += 32
				move16(window, op, from)
				move16(window, op+16, from+16)
			}
		case distance >= 8:
			for from := op - distance; op < end; op += 8 {
				store64(window, op, load64(window, from))
				from += 8
			}
		case distance == 4 || distance == 1 || distance == 2:
			v := load64(window, op-distance)
			switch distance {
			case 1:
				v = v & 0xff * 0x0101010101010101
			case 2:
				v = v & 0xffff * 0x0001000100010001
			default:
				v = v & 0xffffffff * 0x0000000100000001
			}
			for ; op < end; op += 32 {
				store64(window, op, v)
				store64(window, op+8, v)
				store64(window, op+16, v)
				store64(window, op+24, v)
			}
		default: // 3, 5, 6, 7: whole periods are kept in each word
			v := load64(window, op-distance) & (1<<(8*distance&63) - 1)
			v |= v << (8 * distance & 63)
			if distance == 3 {
				v |= v << 48
			}
			stride := distance
			if distance == 3 {
				stride = 6
			}
			for ; op < end; op += stride {
				store64(window, op, v)
			}
		}
		op = end
	}
	d.end = op
	b.at, b.bits, b.count = at, bits, uint(count&63)
	if s == Bad { // the bits of an end of block would have been inspected
		b.count = min(b.count, uint(start&63)-d.endBits)
	}
	b.giveBack()
	return s
}
