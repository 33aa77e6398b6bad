package npy

import (
	"errors"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// dtype is what lsiofs needs to know of a dtype.
type dtype struct {
	itemBytes int64
	// canonical is the same for equal dtypes: with one kind of quotes and blanks, one sign for no
	// byte order, fields' shapes as tuples.
	canonical string
}

var (
	errObject  = errors.New("its dtype holds Python objects, which are pickled: save the array as numbers, strings of fixed length or bytes")
	errUnknown = errors.New("is not a dtype that lsiofs knows: save the array as numbers, strings of fixed length or bytes")
	errHuge    = errors.New("has more than 2^63 bytes: save smaller rows")
)

// parseDtype parses a descr: a type string, or a list of fields. errUnknown and errHuge begin with
// a verb.
func parseDtype(descr literal) (dtype, error) {
	var b strings.Builder
	size, err := describe(&b, descr)
	return dtype{size, b.String()}, err
}

// describe writes the canonical form of a dtype to b and returns its size.
func describe(b *strings.Builder, d literal) (int64, error) {
	switch d.class {
	case aString:
		return describeScalar(b, d.content)
	case aList:
		b.WriteByte('[')
		total := int64(0)
		names := map[string]bool{}
		for _, f := range d.items {
			if !isField(f) || !addNames(names, f.items[0]) {
				return 0, errUnknown
			}
			size, err := describeField(b, f)
			if err != nil {
				return 0, err
			}
			if size > math.MaxInt64-total {
				return 0, errHuge
			}
			total += size
		}
		b.WriteByte(']')
		return total, nil
	}
	return 0, errUnknown
}

// isField reports whether f has the form (name, dtype) or (name, dtype, shape); a name may be
// (title, name).
func isField(f literal) bool {
	return f.class == aTuple && (len(f.items) == 2 || len(f.items) == 3) && isName(f.items[0])
}

// addNames adds a field's name and title, and reports whether they differ from those of the
// previous fields. Padding has no name.
func addNames(names map[string]bool, n literal) bool {
	if n.class == aTuple {
		return addNames(names, n.items[0]) && addNames(names, n.items[1])
	}
	if n.content != "" && names[n.content] {
		return false
	}
	names[n.content] = true
	return true
}

// describeField is describe for a field.
func describeField(b *strings.Builder, f literal) (int64, error) {
	b.WriteByte('(')
	writeName(b, f.items[0])
	size, err := describe(b, f.items[1])
	if err != nil {
		return 0, err
	}
	if len(f.items) == 3 {
		shape, err := parseShape(f.items[2])
		if err != nil {
			return 0, err
		}
		writeShape(b, shape)
		if size, err = product(size, shape); err != nil {
			return 0, err
		}
	}
	b.WriteByte(')')
	return size, nil
}

func isName(n literal) bool {
	if n.class == aTuple {
		return len(n.items) == 2 && n.items[0].class == aString && n.items[1].class == aString
	}
	return n.class == aString
}

func writeName(b *strings.Builder, n literal) {
	if n.class == aTuple {
		writeName(b, n.items[0])
		n = n.items[1]
	}
	b.WriteString(strconv.Quote(n.content))
}

// parseShape parses the shape of a field, a number or a tuple of numbers.
func parseShape(s literal) ([]int64, error) {
	if s.class == aNumber {
		return []int64{s.number}, nil
	}
	if s.class != aTuple {
		return nil, errUnknown
	}
	return numbers(s.items)
}

// numbers returns the values of a tuple of numbers.
func numbers(items []literal) ([]int64, error) {
	list := make([]int64, len(items))
	for i, n := range items {
		if n.class != aNumber {
			return nil, errUnknown
		}
		list[i] = n.number
	}
	return list, nil
}

// writeShape writes a shape in Python's notation.
func writeShape(b *strings.Builder, shape []int64) {
	b.WriteByte('(')
	for i, n := range shape {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.FormatInt(n, 10))
	}
	if len(shape) == 1 {
		b.WriteByte(',')
	}
	b.WriteByte(')')
}

// product returns size times all of shape.
func product(size int64, shape []int64) (int64, error) {
	if size == 0 || slices.Contains(shape, 0) {
		return 0, nil
	}
	for _, n := range shape {
		high, low := bits.Mul64(uint64(size), uint64(n))
		if high != 0 || low > math.MaxInt64 {
			return 0, errHuge
		}
		size = int64(low)
	}
	return size, nil
}

// sizesOf are the sizes in bytes that a number's type string may have. Those of long doubles, f12,
// f16, c24 and c32, depend on the machine that wrote them.
var sizesOf = map[byte][]int64{
	'b': {1}, 'i': {1, 2, 4, 8}, 'u': {1, 2, 4, 8}, 'f': {2, 4, 8, 12, 16}, 'c': {8, 16, 24, 32}, 'm': {8}, 'M': {8},
}

// describeScalar parses a type string of the array interface: byte order, kind, size; for times
// also a unit.
func describeScalar(b *strings.Builder, s string) (int64, error) {
	order := byte('=')
	rest := s
	if rest != "" && strings.IndexByte("<>|=", rest[0]) >= 0 {
		order, rest = rest[0], rest[1:]
	}
	if rest == "" {
		return 0, errUnknown
	}
	kind, digits := rest[0], rest[1:]
	if kind == 'O' {
		return 0, errObject
	}
	unit := ""
	if at := strings.IndexByte(digits, '['); at >= 0 && (kind == 'm' || kind == 'M') {
		digits, unit = digits[:at], digits[at:]
		if !isUnit(unit) {
			return 0, errUnknown
		}
	}
	n, ok := decimal(digits)
	if !ok {
		return 0, errUnknown
	}
	size := n
	switch kind {
	case 'S', 'V':
		order = '|'
	case 'U': // characters of 4 bytes
		var err error
		if size, err = product(4, []int64{n}); err != nil {
			return 0, err
		}
	default:
		if !slices.Contains(sizesOf[kind], n) {
			return 0, errUnknown
		}
		if n == 1 {
			order = '|'
		}
	}
	b.WriteByte(order)
	b.WriteString(rest)
	return size, nil
}

// decimal parses digits.
func decimal(s string) (int64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && (len(s) == 1 || s[0] != '0')
}

var units = []string{"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"}

// isUnit reports whether s is a unit such as "[ns]" or "[25s]".
func isUnit(s string) bool {
	s, closed := strings.CutSuffix(s[1:], "]")
	return closed && slices.Contains(units, strings.TrimLeft(s, "0123456789"))
}
