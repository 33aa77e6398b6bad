package lc0

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Element is the type of a plane's elements in a row of tensors.
type Element string

const (
	U1 Element = "u1" // uint8; plane 109 is the count of half-moves, undivided
	F2 Element = "f2" // float16, rounded to the nearest, ties to even
	F4 Element = "f4" // float32
)

// Shapes of a row: planes (112, 8, 8), probabilities (1858), values (6, 3).
const (
	planes     = 112
	bitPlanes  = 104 // of these, those that are bits in the frame
	squares    = 64
	valuesSize = 4 * 6 * 3
)

// Tensors presents frames as lczero-training's tensors: the input on which a network is trained,
// one row per frame, of the same size for frames of all versions.
//
//	planes         112 × 8 × 8 of Element
//	probabilities  1858 × f32le, unchanged from the frame
//	values         6 × 3 × f32le: q, d and m of result, best, played, original, root, short-term
//
// It is a pure function of the frame, without state, and safe for concurrent use.
//
// Sources: LeelaChessZero/lczero-training, tf/chunkparser.py; LeelaChessZero/lc0,
// src/trainingdata/reader.cc.
type Tensors struct {
	element Element
	tables  *tables
}

// NewTensors returns a Tensors that presents planes in elements of type e.
func NewTensors(e Element) (Tensors, error) {
	switch e {
	case U1, F2, F4:
		return Tensors{element: e, tables: sharedTables()}, nil
	}
	return Tensors{}, fmt.Errorf("tensors of %q: the elements of planes are u1, f2 or f4", e)
}

func (t Tensors) elementBytes() int {
	switch t.element {
	case U1:
		return 1
	case F2:
		return 2
	}
	return 4
}

// RowBytes returns the size of a row.
func (t Tensors) RowBytes() int { return planes*squares*t.elementBytes() + policyBytes + valuesSize }

// Descr returns the row's dtype in NumPy's notation.
func (t Tensors) Descr() string {
	e := "<" + string(t.element)
	if t.element == U1 {
		e = "|u1"
	}
	return fmt.Sprintf("[('planes', '%s', (%d, 8, 8)), ('probabilities', '<f4', (%d,)), ('values', '<f4', (6, 3))]", e, planes, moves)
}

// Input formats of frames: the meaning of the last planes (lc0's NetworkFormat.InputFormat).
const (
	inputClassical       = 1
	inputCastlingPlane   = 2
	inputCanonical       = 3
	inputHectoplies      = 4
	inputCanonicalV2     = 5
	inputHectopliesArmag = 132
	inputV2Armag         = 133
)

// parted is a frame split into its parts.
type parted struct {
	format uint32
	policy []byte
	planes []byte
	flags  []byte
	values []byte
	old    bool // versions 3 to 5: the result is a byte, and later fields are missing
}

func part(frame []byte) (p parted, err error) {
	if len(frame) < versionBytes {
		return p, fmt.Errorf("the frame has %d bytes, too few for its version", len(frame))
	}
	version := binary.LittleEndian.Uint32(frame)
	if size, known := frameBytes[version]; !known || int64(len(frame)) != size {
		return p, fmt.Errorf("the frame has %[2]d bytes, which does not fit its version %[1]d", version, len(frame))
	}
	rest := frame[versionBytes:]
	p.format, p.old = inputClassical, version < 6
	if version >= 5 {
		p.format, rest = binary.LittleEndian.Uint32(rest), rest[4:]
	}
	p.policy, rest = rest[:policyBytes], rest[policyBytes:]
	p.planes, rest = rest[:planesBytes], rest[planesBytes:]
	p.flags, p.values = rest[:countersBytes], rest[countersBytes:]
	switch p.format {
	case inputClassical, inputCastlingPlane, inputCanonical, inputHectoplies, inputCanonicalV2, inputHectopliesArmag, inputV2Armag:
		return p, nil
	}
	return p, fmt.Errorf("the frame's input format is %d, whose planes lsiofs does not know", p.format)
}

// Present writes the row of a frame to dst, which must have RowBytes. If the frame is invalid, or
// its planes have an unknown meaning, that is an error, and dst's contents are undefined.
func (t Tensors) Present(dst, frame []byte) error {
	p, err := part(frame)
	if err != nil {
		return err
	}
	if len(dst) != t.RowBytes() {
		return fmt.Errorf("a row of tensors has %d bytes, not %d", t.RowBytes(), len(dst))
	}
	at := planes * squares * t.elementBytes()
	t.presentPlanes(dst[:at], &p)
	copy(dst[at:], p.policy)
	p.presentValues(dst[at+policyBytes:])
	return nil
}

// flag is a plane that is determined by one or two bytes.
type flag struct {
	rows        bool // the bits of first are row 0 and those of last row 7, lowest first; the rest is 0
	first, last byte
	value       byte // otherwise: of all elements
}

// flagPlanes returns planes 104 to 108.
func (p *parted) flagPlanes() [5]flag {
	usLong, usShort, themLong, themShort, side := p.flags[0], p.flags[1], p.flags[2], p.flags[3], p.flags[4]
	if p.format == inputClassical {
		return [5]flag{{value: usLong}, {value: usShort}, {value: themLong}, {value: themShort}, {value: side}}
	}
	last := flag{rows: true, last: side}
	if p.format == inputCastlingPlane {
		last = flag{value: side}
	}
	return [5]flag{{rows: true, first: usLong, last: themLong}, {rows: true, first: usShort, last: themShort}, {}, {}, last}
}

// halfMoves returns the count of half-moves without a capture or a pawn's move, and its divisor.
func (p *parted) halfMoves() (count byte, by float32) {
	if p.format > inputCanonical {
		return p.flags[5], 100
	}
	return p.flags[5], 99
}

// armageddon reports whether plane 110 is set.
func (p *parted) armageddon() bool {
	return (p.format == inputHectopliesArmag || p.format == inputV2Armag) && p.flags[6] >= 128
}

// low reverses the bits of a byte: in planes the highest comes first, in flags the lowest.
func low(b byte) byte {
	b = b>>4 | b<<4
	b = b&0xcc>>2 | b&0x33<<2
	return b&0xaa>>1 | b&0x55<<1
}

// presentValues writes the values.
func (p *parted) presentValues(dst []byte) {
	const nan = 0x7fc00000
	value := func(i int) uint32 { // the i-th of those after the flags, 0 if the version does not have it
		if 4*i+4 > len(p.values) {
			return 0
		}
		return binary.LittleEndian.Uint32(p.values[4*i:])
	}
	resultQ, resultD, d := value(7), value(8), uint32(0)
	original := [3]uint32{value(12), value(13), value(14)}
	switch {
	case p.old:
		resultQ, resultD = oldResult(int8(p.flags[7]))
		original = [3]uint32{nan, nan, nan}
	case len(p.values) > 4*19+4: // version 7
		d = value(19)
	}
	for i, v := range [18]uint32{
		resultQ, resultD, value(6),
		value(1), value(3), value(5),
		value(9), value(10), value(11),
		original[0], original[1], original[2],
		value(0), value(2), value(4),
		value(18), d, nan,
	} {
		binary.LittleEndian.PutUint32(dst[4*i:], v)
	}
}

// oldResult returns q and d of a result that is won, drawn or lost.
func oldResult(result int8) (q, d uint32) {
	switch {
	case result > 0:
		return math.Float32bits(1), 0
	case result < 0:
		return math.Float32bits(-1), 0
	}
	return 0, math.Float32bits(1)
}

// Rows is the format of games whose streams are arrays of tensors, one row per frame. Frames of
// different versions have the same kind of row, so they may be mixed, even within a tar.
type Rows struct {
	Format
	Tensors
	array format.Framer // of rows
}

var (
	_ format.Mixer     = Rows{}
	_ format.OwnCodecs = Rows{}
	_ format.Unitary   = Rows{}
	_ format.Framer    = Rows{}
	_ format.Presenter = Rows{}
)

// NewRows returns a Rows for the element type in f, which checks frames if f asks for it.
func NewRows(f spec.Format) (Rows, error) {
	t, err := NewTensors(Element(f.As.Element()))
	if err != nil {
		return Rows{}, err
	}
	array, err := npy.Format{}.OfKind(t.Descr() + " ()")
	if err != nil {
		return Rows{}, fmt.Errorf("an array of tensors: %w", err)
	}
	return Rows{Format: Format{check: f.Lc0Check, mixed: true}, Tensors: t, array: array.(npy.Rows)}, nil
}

// StreamExtension returns ".npy".
func (Rows) StreamExtension(string) string { return ".npy" }

// Prologue returns the header of an array of n rows.
func (r Rows) Prologue(n uint64) []byte { return r.array.Prologue(n) }

// Epilogue returns nil: arrays have none.
func (Rows) Epilogue(uint64) []byte { return nil }

// RowType implements format.Presenter.
func (r Rows) RowType() (descr, remark string) {
	remark = "plane 109 is the count of half-moves since a capture or a pawn's move, divided by 99 (input formats 1 to 3) or by 100"
	if r.element == U1 {
		remark = "plane 109 is the count of half-moves since a capture or a pawn's move, undivided: divide it by 99 (input formats 1 to 3) or by 100"
	}
	return r.Descr(), remark
}

// SameKind reports whether both are versions of frames.
func (Rows) SameKind(a, b string) bool {
	_, ok := versionsOf(a)
	_, also := versionsOf(b)
	return ok && also
}

// MixedKind names all versions.
func (Rows) MixedKind(kinds []string) string {
	var all versions
	for _, kind := range kinds {
		v, _ := versionsOf(kind)
		all |= v
	}
	return all.kind()
}

// OfKind returns r, for any versions.
func (r Rows) OfKind(kind string) (format.Format, error) {
	if _, ok := versionsOf(kind); !ok {
		return nil, fmt.Errorf("%q are no versions of frames", kind)
	}
	return r, nil
}

const (
	rowsOfPlane = 8
	planeBytes  = squares / 8 // of a plane of bits: a byte per row, whose highest bit is the first square
	lastPlanes  = planes - bitPlanes
	half1       = 0x3c00 // 1 as float16
)

// half rounds a number from 0 to 65504 to float16, to the nearest, ties to even.
func half(f float32) uint16 {
	bits := math.Float32bits(f)
	exponent := int(bits>>23) - 127
	mantissa := bits&(1<<23-1) | 1<<23
	shift := uint(13) // for a normal number
	if exponent < -14 {
		shift += uint(-14 - exponent)
	}
	if bits == 0 || shift > 24 {
		return 0
	}
	kept, rest, tie := mantissa>>shift, mantissa&(1<<shift-1), uint32(1)<<(shift-1)
	if rest > tie || rest == tie && kept&1 != 0 {
		kept++ // carries into the exponent if the mantissa is full
	}
	if exponent < -14 {
		return uint16(kept)
	}
	return uint16(kept) + uint16(exponent+14)<<10 // kept contains the exponent's lowest bit
}

// number returns eight bytes of elements that are a number.
func (t Tensors) number(n byte) uint64 {
	switch t.element {
	case U1:
		return uint64(n) * 0x0101010101010101
	case F2:
		return uint64(t.tables.halves[n]) * 0x0001000100010001
	}
	return uint64(math.Float32bits(float32(n))) * 0x0000000100000001
}

// share returns eight bytes of elements that are a number divided by 99 or 100; for U1, undivided.
func (t Tensors) share(n byte, by float32) uint64 {
	switch t.element {
	case U1:
		return t.number(n)
	case F2:
		return uint64(t.tables.shares[int(by)-99][n]) * 0x0001000100010001
	}
	return uint64(math.Float32bits(float32(n)/by)) * 0x0000000100000001
}

// presentPlanes writes all planes.
func (t Tensors) presentPlanes(dst []byte, p *parted) {
	bytes := t.elementBytes()
	t.tables.expand(dst[:bitPlanes*squares*bytes], p.planes, bytes)
	dst = dst[bitPlanes*squares*bytes:]
	bits, values := p.lastPlanes()
	t.tables.expand(dst, bits[:], bytes)
	fill := func(i int, word uint64) {
		for plane := dst[i*squares*bytes : (i+1)*squares*bytes]; len(plane) >= 8; plane = plane[8:] {
			binary.LittleEndian.PutUint64(plane, word)
		}
	}
	for i, v := range values {
		if v > 1 { // 0 and 1 were written as bits
			fill(i, t.number(v))
		}
	}
	fill(planeOfHalfMoves-bitPlanes, t.share(p.halfMoves()))
}

// Indexes of some of the last planes.
const (
	planeOfHalfMoves  = 109
	planeOfArmageddon = 110
	planeOfOnes       = 111
)

// lastPlanes returns the planes from 104 on: the bits of each, and the values of those that have
// the same number everywhere. If the number is 0 or 1, the bits have it too. The plane of
// half-moves is left out.
func (p *parted) lastPlanes() (bits [lastPlanes * planeBytes]byte, values [lastPlanes]byte) {
	for i, f := range p.flagPlanes() {
		if f.rows {
			bits[i*planeBytes], bits[i*planeBytes+rowsOfPlane-1] = low(f.first), low(f.last)
		} else {
			values[i] = f.value
		}
	}
	values[planeOfOnes-bitPlanes] = 1
	if p.armageddon() {
		values[planeOfArmageddon-bitPlanes] = 1
	}
	for i, v := range values {
		if v == 1 {
			binary.LittleEndian.PutUint64(bits[i*planeBytes:], math.MaxUint64)
		}
	}
	return bits, values
}
