package parquet

import (
	"encoding/binary"
	"math"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// encoding is an Encoding of parquet.thrift.
type encoding int32

const (
	encPlain           encoding = 0
	encPlainDictionary encoding = 2
	encRLE             encoding = 3
	encBitPacked       encoding = 4
	encDelta           encoding = 5
	encDeltaLength     encoding = 6
	encDeltaBytes      encoding = 7
	encRLEDictionary   encoding = 8
	encByteStreamSplit encoding = 9
)

// physical is a Type of parquet.thrift.
type physical int32

const (
	physBool   physical = 0
	physInt32  physical = 1
	physInt64  physical = 2
	physInt96  physical = 3
	physFloat  physical = 4
	physDouble physical = 5
	physBytes  physical = 6
	physFixed  physical = 7
)

var physicalNames = [...]string{"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}

// width returns the bytes of a value, 0 for byte arrays. Bools are decoded to a byte each.
func (p physical) width(fixed int) int {
	switch p {
	case physBool:
		return 1
	case physInt32, physFloat:
		return 4
	case physInt64, physDouble:
		return 8
	case physInt96:
		return 12
	case physFixed:
		return fixed
	}
	return 0
}

const errValuesShort = reason("its values end early")

// values are values that are not null, one after another. With width they are bytes[i*width:], else
// bytes[spans[i]]. They refer to a page, or to memory of their own.
type values struct {
	n     int
	width int
	bytes []byte
	spans []rows.Span
}

// plainBytes finds n byte arrays of the encoding PLAIN: 4 bytes of length before each. It appends
// their spans, moved by base, to dst.
func plainBytes(dst []rows.Span, b []byte, n int, base uint32) ([]rows.Span, error) {
	at := 0
	for range n {
		if len(b)-at < 4 {
			return dst, errValuesShort
		}
		size := binary.LittleEndian.Uint32(b[at:])
		at += 4
		if uint64(size) > uint64(len(b)-at) {
			return dst, errValuesShort
		}
		dst = append(dst, rows.Span{At: base + uint32(at), Len: size})
		at += int(size)
	}
	return dst, nil
}

// plainBools expands n bits to bytes.
func plainBools(dst, b []byte, n int) ([]byte, error) {
	if (n+7)/8 > len(b) {
		return dst, errValuesShort
	}
	for ; n >= 8; n, b = n-8, b[1:] {
		dst = binary.LittleEndian.AppendUint64(dst, spread(b[0]))
	}
	for i := range n {
		dst = append(dst, b[0]>>i&1)
	}
	return dst, nil
}

// delta reads the head of the encoding DELTA_BINARY_PACKED.
type delta struct {
	b         []byte
	block     int // values of a block
	mini      int // values of a miniblock
	minis     int // miniblocks of a block
	total     int
	value     uint64 // the value that comes next
	widths    []byte // bit widths of the miniblocks that are left of this block
	low       uint64 // of this block
	remaining int    // values after the first that are not decoded yet
}

const (
	errDeltaShort = reason("its deltas end early")
	errDeltaHead  = reason("its deltas have blocks of an impossible size")
)

// maxBlock bounds the values of a block of deltas. Writers use 128 and 256.
const maxBlock = 1 << 20

func (d *delta) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// begin reads the head. There must be at least n values, of which n are decoded.
func (d *delta) begin(b []byte, n int) error {
	*d = delta{b: b}
	block, minis, total := d.uvarint(), d.uvarint(), d.uvarint()
	if d.b == nil {
		return errDeltaShort
	}
	if block == 0 || block > maxBlock || block%128 != 0 || minis == 0 || minis > block/32 || block%minis != 0 || block/minis%32 != 0 {
		return errDeltaHead
	}
	if total != uint64(n) {
		return damaged("it has %d deltas for %d values", total, n)
	}
	d.block, d.minis, d.mini, d.total = int(block), int(minis), int(block/minis), n
	v := d.uvarint()
	if d.b == nil {
		return errDeltaShort
	}
	d.value = v>>1 ^ -(v & 1)
	d.remaining = n - 1
	return nil
}

// miniblock returns the next packed deltas: n of width bits each, without d.low.
func (d *delta) miniblock() (width int, packed []byte, n int, err error) {
	if len(d.widths) == 0 {
		v := d.uvarint()
		if len(d.b) < d.minis {
			return 0, nil, 0, errDeltaShort
		}
		d.low = v>>1 ^ -(v & 1)
		d.widths, d.b = d.b[:d.minis], d.b[d.minis:]
	}
	width = int(d.widths[0])
	d.widths = d.widths[1:]
	if width > 64 {
		return 0, nil, 0, damaged("its deltas have a width of %d bits", width)
	}
	n = min(d.mini, d.remaining)
	size := d.mini / 8 * width
	if size > len(d.b) {
		if size = (n*width + 7) / 8; size > len(d.b) { // the last may not be padded
			return 0, nil, 0, errDeltaShort
		}
	}
	packed, d.b = d.b[:size], d.b[size:]
	d.remaining -= n
	return width, packed, n, nil
}

// deltas decodes n values of size bytes, 4 or 8, appends them to dst, and returns what follows them.
func deltas(dst, b []byte, n, size int) (out, rest []byte, err error) {
	var d delta
	if err := d.begin(b, n); err != nil {
		return dst, nil, err
	}
	at := len(dst)
	dst = dst[:at+n*size] // the caller has made room
	put := dst[at:]
	value := d.value
	if size == 4 {
		binary.LittleEndian.PutUint32(put, uint32(value))
	} else {
		binary.LittleEndian.PutUint64(put, value)
	}
	put = put[size:]
	for d.remaining > 0 {
		width, packed, k, err := d.miniblock()
		if err != nil {
			return dst[:at], nil, err
		}
		low := d.low
		bit := 0
		mask := uint64(1)<<width - 1 // of 64 bits: all
		for i := range k {
			v := load(packed, bit>>3) >> (bit & 7)
			if width > 56 && bit&7+width > 64 {
				v |= load(packed, bit>>3+8) << (64 - bit&7)
			}
			bit += width
			value += low + v&mask
			if size == 4 {
				binary.LittleEndian.PutUint32(put[4*i:], uint32(value))
			} else {
				binary.LittleEndian.PutUint64(put[8*i:], value)
			}
		}
		put = put[k*size:]
	}
	return dst, d.b, nil
}

// split decodes n values of width bytes of the encoding BYTE_STREAM_SPLIT to dst: all first bytes
// come first, then all second ones.
func split(dst, b []byte, n, width int) ([]byte, error) {
	if n*width > len(b) {
		return dst, errValuesShort
	}
	at := len(dst)
	dst = dst[:at+n*width]
	for k := range width {
		out := dst[at+k:]
		for i, v := range b[k*n:][:n] {
			out[i*width] = v
		}
	}
	return dst, nil
}

// decodeValues decodes n values of a page behind those that are carried.
func (l *leaf) decodeValues(enc encoding, b []byte, n int) error {
	if enc == encPlainDictionary || enc == encRLEDictionary {
		return l.decodeIndexes(b, n)
	}
	if l.coded { // the writer has given up the dictionary in the middle of a row
		l.joined, l.val.spans = l.joined[:0], l.val.spans[:0]
		if err := l.gather(l.idx[:l.present]); err != nil {
			return err
		}
		l.coded = false
	}
	if l.width == 0 {
		most := n
		if enc == encPlain {
			most = min(n, len(b)/4)
		}
		spans, err := grow(l.mem, l.val.spans, len(l.val.spans)+most, 8)
		if err != nil {
			return err
		}
		l.val.spans = spans
	}
	b, err := l.decodePlain(enc, b, n, uint32(len(l.joined)))
	if err != nil {
		return err
	}
	if l.present > 0 {
		if int64(len(l.joined))+int64(len(b)) > math.MaxUint32 {
			return &rows.RefusedError{Reason: errMemory}
		}
		if l.joined, err = grow(l.mem, l.joined, len(l.joined)+len(b), 1); err != nil {
			return err
		}
		l.joined = append(l.joined, b...)
		b = l.joined
	}
	l.val.width, l.val.bytes = l.width, b
	return nil
}

// decodeIndexes decodes n indexes of the dictionary.
func (l *leaf) decodeIndexes(b []byte, n int) error {
	if !l.hasDict {
		return damaged("a page has indexes, and its column chunk no dictionary")
	}
	kept := 0
	if l.coded {
		kept = l.present
	}
	idx, err := grow(l.mem, l.idx[:min(kept, cap(l.idx))], kept+n, 4)
	if err != nil {
		return err
	}
	l.idx = idx[:kept+n]
	if n > 0 {
		if len(b) == 0 {
			return errLevelsShort
		}
		if b[0] > 32 {
			return damaged("its indexes have %d bits", b[0])
		}
		h := hybrid{b: b[1:], width: int(b[0])}
		if err := h.indexes(l.idx[kept:], l.dict.n); err != nil {
			return err
		}
	}
	if l.present > 0 && !l.coded { // what is carried is not in the dictionary
		if err := l.gather(l.idx); err != nil {
			return err
		}
		l.val.width, l.val.bytes = l.width, l.joined
		return nil
	}
	l.coded = true
	return nil
}

// decodePlain decodes n values of an encoding without a dictionary. It returns their bytes; spans,
// moved by base, are appended to those of l.
func (l *leaf) decodePlain(enc encoding, b []byte, n int, base uint32) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	var err error
	switch {
	case enc == encPlain && l.phys == physBool, enc == encRLE && l.phys == physBool:
		if l.own, err = grow(l.mem, l.own[:0], n, 1); err != nil {
			return nil, err
		}
		if enc == encPlain {
			l.own, err = plainBools(l.own, b, n)
			return l.own, err
		}
		l.own = l.own[:n]
		_, err = levelsOf(l.own, b, encRLE, 1)
		return l.own, err
	case enc == encPlain && l.width > 0:
		if int64(n)*int64(l.width) > int64(len(b)) {
			return nil, errValuesShort
		}
		return b[:n*l.width], nil
	case enc == encPlain:
		if n > len(b)/4 {
			return nil, errValuesShort
		}
		l.val.spans, err = plainBytes(l.val.spans, b, n, base)
		return b, err
	case enc == encDelta && (l.phys == physInt32 || l.phys == physInt64):
		if l.own, err = grow(l.mem, l.own[:0], n*l.width, 1); err != nil {
			return nil, err
		}
		l.own, _, err = deltas(l.own, b, n, l.width)
		return l.own, err
	case enc == encDeltaLength && l.phys == physBytes:
		if l.lengths, err = grow(l.mem, l.lengths[:0], 4*n, 1); err != nil {
			return nil, err
		}
		return l.deltaLengths(b, n, base)
	case enc == encDeltaBytes && (l.phys == physBytes || l.phys == physFixed):
		return l.deltaBytes(b, n, base)
	case enc == encByteStreamSplit && l.width > 0 && l.phys != physBool && l.phys != physInt96:
		if int64(n)*int64(l.width) > int64(len(b)) {
			return nil, errValuesShort
		}
		if l.own, err = grow(l.mem, l.own[:0], n*l.width, 1); err != nil {
			return nil, err
		}
		l.own, err = split(l.own, b, n, l.width)
		return l.own, err
	}
	return nil, damaged("%s has the encoding %d", physicalNames[l.phys], enc)
}

// deltaLengths decodes DELTA_LENGTH_BYTE_ARRAY: deltas of the lengths, and then all bytes.
func (l *leaf) deltaLengths(b []byte, n int, base uint32) ([]byte, error) {
	lengths, rest, err := deltas(l.lengths[:0], b, n, 4)
	if err != nil {
		return nil, err
	}
	at := 0
	for i := range n {
		size := int32(binary.LittleEndian.Uint32(lengths[4*i:]))
		if size < 0 || int(size) > len(rest)-at {
			return nil, errValuesShort
		}
		l.val.spans = append(l.val.spans, rows.Span{At: base + uint32(at), Len: uint32(size)})
		at += int(size)
	}
	return rest[:at], nil
}

// deltaBytes decodes DELTA_BYTE_ARRAY: deltas of the lengths that a value has in common with the one
// before it, deltas of the lengths of the rest, and then the rests.
func (l *leaf) deltaBytes(b []byte, n int, base uint32) ([]byte, error) {
	var err error
	if l.lengths, err = grow(l.mem, l.lengths[:0], 8*n, 1); err != nil {
		return nil, err
	}
	prefixes, b, err := deltas(l.lengths[:0], b, n, 4)
	if err != nil {
		return nil, err
	}
	lengths, b, err := deltas(l.lengths[4*n:4*n], b, n, 4)
	if err != nil {
		return nil, err
	}
	total, last, rest := int64(0), int64(0), int64(len(b))
	for i := range n {
		prefix := int64(int32(binary.LittleEndian.Uint32(prefixes[4*i:])))
		size := int64(int32(binary.LittleEndian.Uint32(lengths[4*i:])))
		if prefix < 0 || prefix > last || size < 0 || size > rest {
			return nil, errValuesShort
		}
		if last = prefix + size; l.width > 0 && last != int64(l.width) {
			return nil, damaged("a value has %d bytes, and the schema %d", last, l.width)
		}
		rest -= size
		total += last
	}
	if total > math.MaxUint32-int64(base) {
		return nil, &rows.RefusedError{Reason: errMemory}
	}
	out, err := grow(l.mem, l.own[:0], int(total), 1)
	if err != nil {
		return nil, err
	}
	before := 0
	for i := range n {
		at := len(out)
		out = append(out, out[before:][:binary.LittleEndian.Uint32(prefixes[4*i:])]...)
		size := binary.LittleEndian.Uint32(lengths[4*i:])
		out = append(out, b[:size]...)
		b = b[size:]
		if l.width == 0 {
			l.val.spans = append(l.val.spans, rows.Span{At: base + uint32(at), Len: uint32(len(out) - at)})
		}
		before = at
	}
	l.own = out
	return out, nil
}
