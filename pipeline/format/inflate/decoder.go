package inflate

import (
	"encoding/binary"
)

// Status is the reason why Decode returned.
type Status int

const (
	// Input: the input is used up, except for less than MinInput bytes, which must be passed again
	// together with what follows them. At the end of a file it means that the data is truncated.
	Input Status = iota
	// Output: the window is full. It has to be taken.
	Output
	// Block: a block begins here, and it is one to stop at.
	Block
	// End: the data has ended. The next byte after those used is the first that follows the data.
	End
	// Bad: this is not DEFLATE data. What precedes it is in the window.
	Bad
)

const (
	historyBytes = 32 << 10 // the largest distance
	outputBytes  = 64 << 10
	windowEnd    = historyBytes + outputBytes
	// slackOut is more than an iteration of the loop writes that begins before windowEnd: 3
	// literals, 258 bytes of a match, and 31 bytes beyond it.
	slackOut = 320
	// slackIn is more than an iteration of the loop reads: 3 loads of 8 bytes, each at most 7 bytes
	// further.
	slackIn = 40

	// MinInput is enough input for a block's header, the largest item that is read whole or not at
	// all. Given that many bytes, Decode uses some.
	MinInput = 320
	// MemoryBytes is the size of a Decoder.
	MemoryBytes = 4*litTableSize + 4*distTableSize + windowEnd + slackOut + 512
)

// Decoder decodes one stream of DEFLATE data after another. Each begins with Reset. It does not
// allocate. It is not safe for concurrent use.
type Decoder struct {
	litTable  [litTableSize]uint32
	distTable [distTableSize]uint32
	lens      [maxLits + maxDists]uint8 // of the codes of the block whose header was read last

	taken, end int    // window[taken:end] has not been taken
	before     int64  // decoded bytes before window[0]; below 0 if there is a preset history
	bits       uint64 // of the previous input, the next ones lowest
	count      uint   // of bits, below 8
	used       int64  // bytes of input, including those of the remaining bits
	stopAt     int64  // decoded bytes before the block to stop at; below 0: none
	skip       uint   // bits of the input's first byte that precede the data
	endBits    uint   // length of the end-of-block code: at least that many bits follow each symbol's first bit
	left       int    // bytes of the stored block
	state      state
	final      bool // this is the last block
	flat       bool // nearly all of its literals have 8 bits
	fixed      bool // the tables are those of the fixed codes
	checked    bool // use the loop with slices; set by tests

	window [windowEnd + slackOut]byte // last, so that a test can guard the memory after it
}

type state uint32

const (
	stateHeader state = iota
	stateStored
	stateSymbols
	stateEnd
	stateBad
)

// Reset makes d begin a stream. Bytes that were not taken are lost.
func (d *Decoder) Reset() { d.ResetAt(nil, 0) }

// ResetAt makes d begin within a stream, at a block's first bit: bit of the first byte of the
// input, 0 being the lowest. history is what was decoded before, the last 32 KiB of it; matches
// that reach farther are refused. It is copied. Position counts from the input's first byte and
// from 0 decoded bytes.
func (d *Decoder) ResetAt(history []byte, bit uint) {
	history = history[max(0, len(history)-historyBytes):]
	n := copy(d.window[:], history)
	d.taken, d.end, d.before = n, n, int64(-n)
	d.bits, d.count, d.used = 0, 0, 0
	d.skip = bit & 7
	d.stopAt, d.left = -1, 0
	d.state, d.final = stateHeader, false
}

// Window returns the bytes that were decoded and not taken. It is valid until the next Decode or
// Reset.
func (d *Decoder) Window() []byte { return d.window[d.taken:d.end:d.end] }

// Take takes the first n bytes of Window.
func (d *Decoder) Take(n int) {
	if n < 0 || n > d.end-d.taken {
		panic("inflate: more is taken than there is")
	}
	d.taken += n
}

// StopAt makes Decode stop once, with Block, at the first bit of a block before which there are at
// least that many decoded bytes. If decodedBytes is below 0 it never stops, as after Reset.
func (d *Decoder) StopAt(decodedBytes int64) { d.stopAt = decodedBytes }

// Position returns how many bits of input d has consumed since Reset, and how many bytes it has
// decoded, taken or not. It is exact after Block, End and Bad; after Bad it is the position after
// the last bit that was inspected.
func (d *Decoder) Position() (rawBits, decodedBytes int64) {
	return d.used*8 - int64(d.count), d.before + int64(d.end)
}

// History returns the bytes decoded last, up to 32 KiB, taken or not. It is valid until the next
// Decode or Reset.
func (d *Decoder) History() []byte {
	return d.window[max(0, d.end-historyBytes):d.end:d.end]
}

// Decode decodes as much of in as it can, and returns how many bytes of it were used. The caller
// passes the rest again, together with what follows it.
//
// It returns when the window is full, even before anything was decoded if nothing was taken.
func (d *Decoder) Decode(in []byte) (used int, s Status) {
	b := bitReader{in: in, bits: d.bits, count: d.count}
	if d.end >= windowEnd {
		if d.taken < d.end {
			return 0, Output
		}
		d.slide()
	}
	if d.skip > 0 && len(in) > 0 {
		b.fill()
		b.drop(d.skip)
		d.skip = 0
	}
	s = d.run(&b)
	if d.state == stateEnd || d.state == stateBad {
		d.stopAt = -1
	}
	b.giveBack()
	d.bits, d.count = b.bits, b.count
	d.used += int64(b.at)
	return b.at, s
}

// slide makes room after the history.
func (d *Decoder) slide() {
	from := d.end - historyBytes
	copy(d.window[:historyBytes], d.window[from:d.end])
	d.before += int64(from)
	d.taken, d.end = historyBytes, historyBytes
}

// run executes one state after another.
func (d *Decoder) run(b *bitReader) Status {
	for {
		switch d.state {
		case stateHeader:
			if d.stopAt >= 0 && d.before+int64(d.end) >= d.stopAt {
				d.stopAt = -1
				return Block
			}
			if s := d.header(b); s != more {
				return s
			}
		case stateStored:
			if s := d.stored(b); s != more {
				return s
			}
		case stateSymbols:
			if s := d.symbols(b); s != more {
				return s
			}
		case stateEnd:
			return End
		default:
			return Bad
		}
	}
}

// more is not a status: the next state follows.
const more Status = -1

// endBlock continues after a block.
func (d *Decoder) endBlock(b *bitReader) {
	d.state = stateHeader
	if d.final {
		b.drop(b.count & 7) // the rest of the byte
		d.state = stateEnd
	}
}

// bad ends the stream.
func (d *Decoder) bad() Status {
	d.state = stateBad
	return Bad
}

// stored copies the available bytes of a stored block, which begin at a byte boundary of the input.
func (d *Decoder) stored(b *bitReader) Status {
	b.giveBack()
	for d.left > 0 {
		if d.end >= windowEnd {
			return Output
		}
		n := copy(d.window[d.end:windowEnd], b.in[b.at:min(len(b.in), b.at+d.left)])
		if n == 0 {
			return Input
		}
		d.end += n
		b.at += n
		d.left -= n
	}
	d.endBlock(b)
	return more
}

// symbols decodes a block's symbols: all except the input's last ones in the loop.
func (d *Decoder) symbols(b *bitReader) Status {
	for {
		if d.end >= windowEnd {
			return Output
		}
		s := more
		if len(b.in)-b.at >= slackIn+8 { // the loop begins with a load, and must reach a symbol
			if unsafeLoop && !d.checked {
				s = d.loop(b)
			} else {
				s = d.loopChecked(b)
			}
		} else {
			s = d.symbol(b)
		}
		switch s {
		case more:
		case End:
			d.endBlock(b)
			return more
		case Bad:
			return d.bad()
		default:
			return s
		}
	}
}

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
