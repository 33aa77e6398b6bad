package tar

import (
	"bytes"
	"math"
	"strconv"
)

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
