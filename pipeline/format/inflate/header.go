package inflate

import (
	"math/bits"
	"sync"
)

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

// Entries of the tables, by their bits:
//
//	literal       31: 1   16…23: the byte                    8…11: bits of the code  0…5: the same
//	length            16…24: base, to add extra bits to      8…11: bits of the code  0…5: with the extra ones
//	distance          16…30: the same                        8…11                    0…5
//	second table  exceptional, second   16…27: its start     8…11: bits of its index 0…5: bits of the first one
//	block's end   exceptional, blockEnd                                              0…5: bits of the code
//	no symbol     exceptional                                                        0…5: bits that were inspected
//
// In second tables the bits of the code are those after the first table's.
const (
	literal   = 1 << 31 // of litTable
	entryBase = 16
	entryBits = 63

	// exceptional is bit 15, which neither a base nor a count of bits reaches.
	exceptional = 1 << 15
	second      = 1 << 14
	blockEnd    = 1 << 13
)

const (
	litTableBits  = 11
	distTableBits = 9
	lensTableBits = 7
	// Codes of up to 15 bits need at most 2342 and 594 entries, as computed by zlib's program
	// enough for 288 and 32 symbols. These are powers of two, so that a masked index is within
	// bounds.
	litTableSize  = 4096
	distTableSize = 1024
)

// symbolEntries are the entries of symbols, without the bits of a code.
type symbolEntries struct {
	lit  [maxLits]uint32
	dist [maxDists]uint32
	lens [19]uint32
}

var entries = sync.OnceValue(func() *symbolEntries {
	var e symbolEntries
	for i := range 256 {
		e.lit[i] = literal | uint32(i)<<entryBase
	}
	e.lit[256] = exceptional | blockEnd
	base := 3
	for i := range 28 { // in groups of 4 whose ranges double
		extra := max(0, i/4-1)
		e.lit[257+i] = uint32(base)<<entryBase | uint32(extra)
		base += 1 << extra
	}
	e.lit[285] = 258 << entryBase // not 227 plus up to 31 extra
	e.lit[286], e.lit[287] = exceptional, exceptional
	base = 1
	for i := range 30 { // in groups of 2
		extra := max(0, i/2-1)
		e.dist[i] = uint32(base)<<entryBase | uint32(extra)
		base += 1 << extra
	}
	e.dist[30], e.dist[31] = exceptional, exceptional
	for i := range e.lens {
		e.lens[i] = uint32(i) << entryBase
	}
	return &e
})

// withCode returns an entry with the bits of its code added.
func withCode(entry uint32, codeBits int) uint32 {
	if entry&exceptional != 0 {
		return entry + uint32(codeBits)
	}
	return entry + uint32(codeBits)<<8 + uint32(codeBits)
}

// build makes the table of a code, whose first part has 1<<root entries. It reports whether lens,
// the bits of each symbol's code, are valid. A code without symbols, or with a single symbol of 1
// bit, is valid; its unused entries are exceptional.
func build(table []uint32, root int, lens []uint8, entries []uint32) bool {
	var counts [maxCodeLen + 1]int
	for _, l := range lens {
		counts[l&15]++
	}
	longest := maxCodeLen
	for longest > 0 && counts[longest] == 0 {
		longest--
	}
	if longest == 0 {
		fillEntries(table[:1<<root], exceptional, exceptional)
		return true
	}
	left := 1
	for l := 1; l <= longest; l++ {
		left = left<<1 - counts[l]
		if left < 0 {
			return false
		}
	}
	if left > 0 && (longest != 1 || counts[1] != 1) {
		return false
	}
	var offsets [maxCodeLen + 2]int
	for l := 1; l <= maxCodeLen; l++ {
		offsets[l+1] = offsets[l] + counts[l]
	}
	var sorted [maxLits]uint16
	for symbol, l := range lens {
		if l != 0 {
			sorted[offsets[l]] = uint16(symbol)
			offsets[l]++
		}
	}
	if left > 0 {
		fillEntries(table[:1<<root], withCode(entries[sorted[0]], 1), exceptional+1)
		return true
	}
	fillTable(table, root, longest, &counts, &sorted, entries)
	return true
}

// fillEntries sets the entries with even indices and those with odd ones.
func fillEntries(table []uint32, even, odd uint32) {
	for i := 0; i < len(table); i += 2 {
		table[i], table[i+1] = even, odd
	}
}

// fillTable fills the table of a complete code. Codes are counted with their bits reversed, as they
// are in the data. For the shorter codes, the table of codes of l bits is that of l-1 bits twice;
// all other entries are set later, because there is a code for each.
func fillTable(table []uint32, root, longest int, counts *[maxCodeLen + 1]int, sorted *[maxLits]uint16, entries []uint32) {
	code, i := 0, 0
	for l := 1; l <= min(root, longest); l++ {
		for range counts[l] {
			table[code] = withCode(entries[sorted[i]], l)
			i++
			code = nextCode(code, l)
		}
		if l < root {
			copy(table[1<<l:2<<l], table[:1<<l])
		}
	}
	for l := longest + 1; l < root; l++ {
		copy(table[1<<l:2<<l], table[:1<<l])
	}
	prefix, start, size := -1, 0, 0
	next := 1 << root
	for l := root + 1; l <= longest; l++ {
		for ; counts[l] > 0; counts[l]-- {
			if p := code & (1<<root - 1); p != prefix {
				prefix, start = p, next
				indexBits := secondBits(l-root, root, longest, counts)
				size = 1 << indexBits
				next += size
				table[prefix] = exceptional | second | uint32(start)<<entryBase | uint32(indexBits)<<8 | uint32(root)
			}
			e := withCode(entries[sorted[i]], l-root)
			i++
			for at := start + code>>root; at < start+size; at += 1 << (l - root) {
				table[at] = e
			}
			code = nextCode(code, l)
		}
	}
}

// secondBits returns how many index bits a second table needs whose first code has first bits:
// enough for the remaining codes to fill it.
func secondBits(first, root, longest int, counts *[maxCodeLen + 1]int) int {
	n := first
	for left := 1 << n; n+root < longest; n++ {
		left -= counts[n+root]
		if left <= 0 {
			break
		}
		left <<= 1
	}
	return n
}

// nextCode returns the code of l bits, reversed, after code. After the last one it returns 0.
func nextCode(code, l int) int {
	ones := 1<<l - 1
	if code == ones {
		return 0
	}
	top := 1 << (bits.Len(uint(code^ones)) - 1) // the highest bit that is 0
	return code&(top-1) | top
}

// buildFixed makes the tables of the fixed codes, unless they are already in place.
func (d *Decoder) buildFixed() {
	if d.fixed {
		return
	}
	lens := &d.lens
	for i := range maxLits {
		switch {
		case i < 144:
			lens[i] = 8
		case i < 256:
			lens[i] = 9
		case i < 280:
			lens[i] = 7
		default:
			lens[i] = 8
		}
	}
	for i := range maxDists {
		lens[maxLits+i] = 5
	}
	build(d.litTable[:], litTableBits, lens[:maxLits], entries().lit[:])
	build(d.distTable[:], distTableBits, lens[maxLits:], entries().dist[:])
	d.fixed, d.flat, d.endBits = true, false, uint(lens[256])
}
