package inflate

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
