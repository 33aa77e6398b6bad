package tar

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
)

const blockBytes = 512

// Fields of a header block: offset and size.
const (
	nameAt, nameBytes         = 0, 100
	modeAt                    = 100
	uidAt                     = 108
	gidAt                     = 116
	sizeAt, sizeBytes         = 124, 12
	mtimeAt                   = 136
	checksumAt, checksumBytes = 148, 8
	typeAt                    = 156
	magicAt                   = 257
	prefixAt, prefixBytes     = 345, 155
	paddingAt                 = 500
)

// ustarMagic is the magic and version of a POSIX header, the only kind whose prefix field is part
// of the path.
var ustarMagic = []byte("ustar\x0000")

// Types of members that are treated specially.
const (
	typeRegular    = '0'
	typeOldRegular = 0
	typeContiguous = '7'
	typePAX        = 'x'
	typeSolarisPAX = 'X'
	typeGlobalPAX  = 'g'
	typeLongName   = 'L'
	typeLongLink   = 'K'
	typeSparse     = 'S'
)

func isRegular(t byte) bool {
	return t == typeRegular || t == typeOldRegular || t == typeContiguous
}

// hasData reports whether data follows a header: links, devices, directories and fifos have none,
// whatever their size fields contain.
func hasData(t byte) bool { return t < '1' || t > '6' }

// byteSum returns the sum of the bytes of a block. It adds eight at a time in lanes of 16 bits,
// which 128 bytes of at most 255 can't overflow.
func byteSum(block []byte) uint32 {
	const evens = 0x00ff00ff00ff00ff
	var lanes uint64
	for b := block[:blockBytes]; len(b) >= 8; b = b[8:] {
		v := binary.LittleEndian.Uint64(b)
		lanes += v&evens + v>>8&evens
	}
	lanes = lanes&0x0000ffff0000ffff + lanes>>16&0x0000ffff0000ffff
	return uint32(lanes) + uint32(lanes>>32)
}

// checksumHolds reports whether a block's checksum is that of its bytes, unsigned as in POSIX, or
// signed as written by some old programs. sum is their byteSum.
func checksumHolds(block []byte, sum uint32) bool {
	want, ok := parseOctal(block[checksumAt : checksumAt+checksumBytes])
	if !ok {
		return false
	}
	for _, c := range block[checksumAt : checksumAt+checksumBytes] {
		sum -= uint32(c)
	}
	sum += checksumBytes * ' '
	if want == int64(sum) {
		return true
	}
	signed := int64(sum)
	for i, c := range block[:blockBytes] {
		if c >= 0x80 && (i < checksumAt || i >= checksumAt+checksumBytes) {
			signed -= 256
		}
	}
	return want == signed
}

// parseOctal parses a numeric field: spaces or NULs, octal digits, and then nothing, or a space or
// NUL followed by anything.
func parseOctal(field []byte) (int64, bool) {
	i := 0
	for i < len(field) && (field[i] == ' ' || field[i] == 0) {
		i++
	}
	var v int64
	for ; i < len(field); i++ {
		c := field[i]
		if c == ' ' || c == 0 {
			break
		}
		if c < '0' || c > '7' || v > math.MaxInt64>>3 {
			return 0, false
		}
		v = v<<3 | int64(c-'0')
	}
	return v, true
}

// parseSize parses the size field: octal, or base 256 if the first bit is set. A number that
// overflows an int64 is returned as math.MaxInt64, since data of that size extends beyond any file
// as well.
func parseSize(block []byte) (int64, bool) {
	field := block[sizeAt : sizeAt+sizeBytes]
	if field[0]&0x80 == 0 {
		return parseOctal(field)
	}
	if field[0]&0x40 != 0 { // negative
		return 0, false
	}
	v := int64(field[0] & 0x3f)
	for _, c := range field[1:] {
		if v > math.MaxInt64>>8 {
			return math.MaxInt64, true
		}
		v = v<<8 | int64(c)
	}
	return v, true
}

// maxPadded bounds padded sizes: no file has that many bytes, and an offset in a file can be added
// without overflow.
const maxPadded = 1 << 62

// padded rounds a size up to whole blocks, to at most maxPadded bytes.
func padded(size int64) int64 {
	return (min(size, maxPadded) + blockBytes - 1) &^ (blockBytes - 1)
}

// text returns a field up to its first NUL.
func text(field []byte) []byte {
	if i := bytes.IndexByte(field, 0); i >= 0 {
		return field[:i]
	}
	return field
}

// ustarPrefix returns the prefix field of a POSIX header, empty for others.
func ustarPrefix(block []byte) []byte {
	if !bytes.Equal(block[magicAt:magicAt+len(ustarMagic)], ustarMagic) {
		return nil
	}
	return text(block[prefixAt : prefixAt+prefixBytes])
}

// appendHeaderPath appends the path in a header block, without extension headers.
func appendHeaderPath(dst, block []byte) []byte {
	if prefix := ustarPrefix(block); len(prefix) > 0 {
		dst = append(append(dst, prefix...), '/')
	}
	return append(dst, text(block[nameAt:nameAt+nameBytes])...)
}

// putChecksum writes a block's checksum: six octal digits, NUL, space.
func putChecksum(block []byte) {
	field := block[checksumAt : checksumAt+checksumBytes]
	copy(field, "        ")
	putOctal(field[:6], int64(byteSum(block)))
	field[6], field[7] = 0, ' '
}

// putSize writes a size below 8 GiB: eleven octal digits and a NUL.
func putSize(block []byte, size int64) {
	putOctal(block[sizeAt:sizeAt+sizeBytes-1], size)
	block[sizeAt+sizeBytes-1] = 0
}

// putOctal fills field with the digits of v, with leading zeros.
func putOctal(field []byte, v int64) {
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = '0' + byte(v&7)
		v >>= 3
	}
}

// paxRecord is one record of a PAX header: "<length> <key>=<value>\n".
type paxRecord struct {
	start, end int // in the header's data
	key, value []byte
}

// parsePAX calls visit for each record of a PAX header's data, in order. reason is why they can't
// be parsed, "" if they can.
func parsePAX(data []byte, visit func(paxRecord)) (reason string) {
	for at := 0; at < len(data); {
		rest := data[at:]
		space := bytes.IndexByte(rest[:min(len(rest), 21)], ' ')
		if space <= 0 {
			return "a PAX record has no length"
		}
		length, ok := parseDecimal(rest[:space])
		if !ok || length > int64(len(rest)) || length <= int64(space)+1 || rest[length-1] != '\n' {
			return "a PAX record has a wrong length"
		}
		key, value, found := bytes.Cut(rest[space+1:length-1], []byte("="))
		if !found || len(key) == 0 {
			return "a PAX record has no key"
		}
		visit(paxRecord{start: at, end: at + int(length), key: key, value: value})
		at += int(length)
	}
	return ""
}

// parseDecimal parses digits only. As in parseSize, a number that overflows an int64 is returned as
// math.MaxInt64.
func parseDecimal(p []byte) (int64, bool) {
	if len(p) == 0 {
		return 0, false
	}
	var v int64
	for _, c := range p {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := int64(c - '0')
		if v > (math.MaxInt64-d)/10 {
			v = math.MaxInt64
			continue
		}
		v = v*10 + d
	}
	return v, true
}

const pathRecordOverhead = len(" path=\n")

// pathRecordBytes returns the length of a record that sets path to valueBytes bytes. The record
// begins with its own length, which includes the digits of the length.
func pathRecordBytes(valueBytes int64) int64 {
	n := valueBytes + int64(pathRecordOverhead)
	digits := decimalDigits(n)
	if d := decimalDigits(n + digits); d > digits {
		digits = d
	}
	return n + digits
}

// appendPathRecord appends the record that sets path to prefix + path.
func appendPathRecord(dst, prefix, path []byte) []byte {
	dst = strconv.AppendInt(dst, pathRecordBytes(int64(len(prefix)+len(path))), 10)
	dst = append(dst, " path="...)
	dst = append(append(dst, prefix...), path...)
	return append(dst, '\n')
}

// decimalDigits returns the number of digits of v ≥ 0.
func decimalDigits(v int64) int64 {
	n := int64(1)
	for ; v >= 10; v /= 10 {
		n++
	}
	return n
}
