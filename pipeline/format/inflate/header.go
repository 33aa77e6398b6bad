package inflate

const (
	maxLits    = 288 // literal and length codes, including the fixed ones
	maxDists   = 32
	dynLits    = 286 // the largest number that a header may have
	dynDists   = 30
	maxCodeLen = 15
)

// lensOrder is the order of the lengths of the code-length codes.
var lensOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// header reads a block's header, whole or not at all.
func (d *Decoder) header(in *bitReader) Status {
	b := *in
	b.fill()
	if b.count < 3 {
		return Input
	}
	final, kind := b.bits&1 != 0, b.bits>>1&3
	b.drop(3)
	s := more
	switch kind {
	case 0:
		s = d.storedHeader(&b)
	case 1:
		d.buildFixed()
	case 2:
		s = d.codesHeader(&b)
	default:
		s = Bad
	}
	switch s {
	case Input:
		return Input
	case Bad:
		*in = b
		return d.bad()
	}
	*in = b
	d.final = final
	d.state = stateSymbols
	if kind == 0 {
		d.state = stateStored
	}
	return more
}

// storedHeader reads the size of a stored block, and its complement.
func (d *Decoder) storedHeader(b *bitReader) Status {
	b.drop(b.count & 7)
	b.fill()
	if b.count < 32 {
		return Input
	}
	n, complement := uint16(b.bits), uint16(b.bits>>16)
	b.drop(32)
	if n != ^complement {
		return Bad
	}
	d.left = int(n)
	return more
}

// codesHeader reads the lengths of codes, and builds their tables.
func (d *Decoder) codesHeader(b *bitReader) Status {
	b.fill()
	if b.count < 14 {
		return Input
	}
	lits, dists, lens := int(b.bits&31)+257, int(b.bits>>5&31)+1, int(b.bits>>10&15)+4
	b.drop(14)
	if lits > dynLits || dists > dynDists {
		return Bad
	}
	var codeLens [19]uint8
	for i := range lens {
		if b.count < 3 {
			b.fill()
			if b.count < 3 {
				return Input
			}
		}
		codeLens[lensOrder[i]] = uint8(b.bits & 7)
		b.drop(3)
	}
	var table [1 << lensTableBits]uint32
	if !build(table[:], lensTableBits, codeLens[:], entries().lens[:]) {
		return Bad
	}
	if s := d.readLens(b, &table, lits+dists); s != more {
		return s
	}
	d.fixed = false
	if !build(d.litTable[:], litTableBits, d.lens[:lits], entries().lit[:]) {
		return Bad
	}
	if !build(d.distTable[:], distTableBits, d.lens[lits:lits+dists], entries().dist[:]) {
		return Bad
	}
	d.endBits = uint(d.lens[256])
	eights := 0
	for _, l := range d.lens[:256] {
		if l == 8 {
			eights++
		}
	}
	d.flat = eights >= flatLits
	return more
}

// flatLits is how many of the 256 literals must have codes of 8 bits for a block to be flat: 80 %.
const flatLits = 205

// readLens reads n lengths of codes into d.lens.
func (d *Decoder) readLens(b *bitReader, table *[1 << lensTableBits]uint32, n int) Status {
	for i := 0; i < n; {
		if b.count < 7+7 {
			b.fill()
		}
		e := table[b.bits&(1<<lensTableBits-1)]
		if bits := uint(e & entryBits); bits > b.count {
			return Input
		} else {
			b.drop(bits)
		}
		if e&exceptional != 0 {
			return Bad
		}
		symbol := e >> entryBase
		if symbol < 16 {
			d.lens[i] = uint8(symbol)
			i++
			continue
		}
		var length uint8
		var repeat int
		var extra uint
		switch symbol {
		case 16:
			if i == 0 {
				return Bad
			}
			length, repeat, extra = d.lens[i-1], 3, 2
		case 17:
			repeat, extra = 3, 3
		default:
			repeat, extra = 11, 7
		}
		if extra > b.count {
			return Input
		}
		repeat += int(b.bits & (1<<extra - 1))
		b.drop(extra)
		if i+repeat > n {
			return Bad
		}
		for range repeat {
			d.lens[i] = length
			i++
		}
	}
	return more
}
