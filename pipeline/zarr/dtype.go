package zarr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Dtype is the type of an array's elements.
type Dtype struct {
	// Descr is the type of the elements of crops, which are little-endian, in the syntax of npy
	// headers: "'<i2'" with its quotes, or a list of fields.
	Descr string
	// ItemBytes is the size of an element.
	ItemBytes int
	// Units are the numbers that an element consists of, in order and without gaps. A plain number
	// has one, a complex one two of the same size.
	Units []Unit

	class class
}

// Unit is a run of equal numbers in an element.
type Unit struct {
	// Bytes is the size of each number, Count how many there are.
	Bytes, Count int
	// Big means that they are stored most significant byte first.
	Big bool
}

// Big reports whether any number of an element is big-endian, so that copying has to reverse bytes.
func (d Dtype) Big() bool {
	return slices.ContainsFunc(d.Units, func(u Unit) bool { return u.Big })
}

// withOrder returns d with all numbers in one byte order.
func (d Dtype) withOrder(big bool) Dtype {
	d.Units = slices.Clone(d.Units)
	for i, u := range d.Units {
		d.Units[i].Big = big && u.Bytes > 1
	}
	return d
}

// class determines how fill values of a type are written.
type class byte

const (
	aBool class = iota + 1
	anInt
	aUint
	aFloat
	aBrainFloat
	aComplex
	aTime   // a date or a duration: an int64
	aRaw    // bytes
	aString // bytes, padded with zeros
	someText
	someFields
)

// plain returns a type of one number, or of two for complex ones.
func plain(c class, letter byte, bytes int) Dtype {
	u := Unit{Bytes: bytes, Count: 1}
	if c == aComplex {
		u = Unit{Bytes: bytes / 2, Count: 2}
	}
	order := "<"
	if bytes == 1 {
		order = "|"
	}
	return Dtype{Descr: fmt.Sprintf("'%s%c%d'", order, letter, bytes), ItemBytes: bytes, Units: []Unit{u}, class: c}
}

// raw returns a type of bytes without a byte order.
func raw(c class, letter byte, bytes int) Dtype {
	return Dtype{Descr: fmt.Sprintf("'|%c%d'", letter, bytes), ItemBytes: bytes, Units: []Unit{{Bytes: 1, Count: bytes}}, class: c}
}

// plainTypes are the v3 data types without a configuration.
var plainTypes = map[string]struct {
	class  class
	letter byte
	bytes  int
}{
	"bool": {aBool, 'b', 1},
	"int8": {anInt, 'i', 1}, "int16": {anInt, 'i', 2}, "int32": {anInt, 'i', 4}, "int64": {anInt, 'i', 8},
	"uint8": {aUint, 'u', 1}, "uint16": {aUint, 'u', 2}, "uint32": {aUint, 'u', 4}, "uint64": {aUint, 'u', 8},
	"float16": {aFloat, 'f', 2}, "float32": {aFloat, 'f', 4}, "float64": {aFloat, 'f', 8},
	"complex64": {aComplex, 'c', 8}, "complex128": {aComplex, 'c', 16},
	"bfloat16": {aBrainFloat, 'V', 2},
}

// plainType returns the v3 data type of that name, if it has no configuration.
func plainType(name string) (Dtype, bool) {
	p, ok := plainTypes[name]
	if !ok {
		return Dtype{}, false
	}
	d := plain(p.class, p.letter, p.bytes)
	if p.class == aBrainFloat {
		d.Descr = "'|V2'" // NumPy has no such type
	}
	return d, true
}

const wantNumbers = "store numbers, dates, raw bits or (in v2) strings of fixed length"

// dtypeV3 parses the type of a v3 document. Its byte order is determined by the codecs.
func dtypeV3(v value) (Dtype, error) {
	name, config, err := v.extension()
	if err != nil {
		return Dtype{}, err
	}
	if d, ok := plainType(name); ok {
		return d, nil
	}
	if digits, ok := strings.CutPrefix(name, "r"); ok {
		if bits, err := strconv.Atoi(digits); err == nil && strconv.Itoa(bits) == digits {
			if bits <= 0 || bits%8 != 0 || bits/8 > MaxItemBytes {
				return Dtype{}, fmt.Errorf("raw bits come in multiples of 8, up to %d; it is %q", MaxItemBytes*8, name)
			}
			return raw(aRaw, 'V', bits/8), nil
		}
	}
	if name == "numpy.datetime64" || name == "numpy.timedelta64" {
		return timeV3(name, config)
	}
	if d, err := typeString(name); err == nil && d.isOneNumber() && !d.Big() {
		return d, nil
	}
	return Dtype{}, fmt.Errorf("data type %q is not supported: %s", name, wantNumbers)
}

// timeUnits are NumPy's, without the generic one.
var timeUnits = []string{"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"}

// timeV3 parses the type of dates or durations.
func timeV3(name string, config []member) (Dtype, error) {
	unit, factor := "generic", int64(1)
	for _, m := range config {
		var err error
		switch m.name {
		case "unit":
			unit, err = m.value.text()
		case "scale_factor":
			factor, err = m.value.integer(1, 1<<31-1)
		default:
			err = fmt.Errorf("is unknown")
		}
		if err != nil {
			return Dtype{}, fmt.Errorf("configuration.%s %w", m.name, err)
		}
	}
	letter := byte('M')
	if name == "numpy.timedelta64" {
		letter = 'm'
	}
	return timeOf(letter, unit, factor)
}

// timeOf returns the type of dates ('M') or durations ('m') that count in steps of factor units.
func timeOf(letter byte, unit string, factor int64) (Dtype, error) {
	d := plain(aTime, letter, 8)
	switch {
	case unit == "μs":
		unit = "us"
	case unit == "generic":
		return d, nil
	}
	if !slices.Contains(timeUnits, unit) {
		return Dtype{}, fmt.Errorf("%q is not a unit of time; NumPy's are %s", unit, strings.Join(timeUnits, ", "))
	}
	if factor != 1 {
		unit = strconv.FormatInt(factor, 10) + unit
	}
	d.Descr = fmt.Sprintf("'<%c8[%s]'", letter, unit)
	return d, nil
}

// dtypeV2 parses the type of a v2 document: a NumPy type string, or a list of fields.
func dtypeV2(v value, depth int) (Dtype, error) {
	if v[0] == '[' {
		return fieldsV2(v, depth)
	}
	s, err := v.text()
	if err != nil {
		return Dtype{}, err
	}
	return typeString(s)
}

// fieldsV2 reads a structure: a list of [name, type] or [name, type, shape].
func fieldsV2(v value, depth int) (Dtype, error) {
	const deepest, most = 8, 1 << 12
	items, err := v.list(most)
	if err != nil {
		return Dtype{}, err
	}
	if depth == deepest || len(items) == 0 {
		return Dtype{}, fmt.Errorf("has no fields, or structures more than %d deep", deepest)
	}
	d := Dtype{class: someFields}
	texts := make([]string, len(items))
	names := map[string]bool{}
	for i, item := range items {
		parts, err := item.list(3)
		if err != nil || len(parts) < 2 {
			return Dtype{}, fmt.Errorf("field %d must be [name, type] or [name, type, shape]", i)
		}
		name, err := parts[0].text()
		if err != nil || names[name] || !quotable(name) {
			return Dtype{}, fmt.Errorf("field %d needs a name of its own, of printable ASCII characters", i)
		}
		names[name] = true
		f, shape, err := fieldV2(parts, depth)
		if err != nil {
			return Dtype{}, fmt.Errorf("field %q: %w", name, err)
		}
		texts[i] = fmt.Sprintf("('%s', %s%s)", name, f.Descr, shape)
		d.ItemBytes += f.ItemBytes
		d.Units = append(d.Units, f.Units...)
		if d.ItemBytes > MaxItemBytes || len(d.Units) > MaxItemBytes/16 {
			return Dtype{}, fmt.Errorf("has elements of more than %d bytes", MaxItemBytes)
		}
	}
	d.Descr = "[" + strings.Join(texts, ", ") + "]"
	return d, nil
}

// fieldV2 parses a field's type, repeated according to its shape, and returns its shape in the
// syntax of npy headers.
func fieldV2(parts []value, depth int) (Dtype, string, error) {
	f, err := dtypeV2(parts[1], depth+1)
	if err != nil || len(parts) == 2 {
		return f, "", err
	}
	shape, err := parts[2].integers(1, MaxItemBytes)
	if err != nil {
		return f, "", fmt.Errorf("its shape %w", err)
	}
	count := 1
	for _, n := range shape {
		if count *= int(n); count*f.ItemBytes > MaxItemBytes || count*len(f.Units) > MaxItemBytes/16 && len(f.Units) > 1 {
			return f, "", fmt.Errorf("has more than %d bytes", MaxItemBytes)
		}
	}
	f.ItemBytes *= count
	if len(f.Units) == 1 {
		f.Units = []Unit{f.Units[0]}
		f.Units[0].Count *= count
	} else {
		f.Units = slices.Repeat(f.Units, count)
	}
	return f, ", " + shapeText(shape), nil
}

// quotable reports whether a name needs no escaping between single quotes.
func quotable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '\'' || r == '\\' })
}

// shapeText formats a shape as a Python tuple.
func shapeText(shape []int64) string {
	texts := make([]string, len(shape))
	for i, n := range shape {
		texts[i] = strconv.FormatInt(n, 10)
	}
	if len(texts) == 1 {
		return "(" + texts[0] + ",)"
	}
	return "(" + strings.Join(texts, ", ") + ")"
}

// numpyNames are the names of numbers that NumPy's dtype() accepts in addition to those of v3
// (plainTypes). If they depend on the machine, they are those of 64-bit Linux.
var numpyNames = map[string]string{
	"bool_": "?", "bool8": "?",
	"byte": "b", "short": "h", "intc": "i", "int": "q", "int_": "q", "long": "q", "longlong": "q", "intp": "q", "int0": "q",
	"ubyte": "B", "ushort": "H", "uintc": "I", "uint": "Q", "ulong": "Q", "ulonglong": "Q", "uintp": "Q", "uint0": "Q",
	"half": "e", "single": "f", "double": "d", "float": "d", "float_": "d",
	"csingle": "F", "singlecomplex": "F", "cdouble": "D", "complex": "D", "complex_": "D", "cfloat": "D",
}

// numpyLetters are the one-letter codes, which may be preceded by a byte order.
var numpyLetters = map[string]string{
	"?": "b1", "b": "i1", "h": "i2", "i": "i4", "l": "i8", "q": "i8", "p": "i8",
	"B": "u1", "H": "u2", "I": "u4", "L": "u8", "Q": "u8", "P": "u8",
	"e": "f2", "f": "f4", "d": "f8", "F": "c8", "D": "c16",
}

// typeString parses what NumPy's dtype() accepts for a plain type: a type string of its array
// interface, as v2 documents have, or one of its names. Without a byte order it is little-endian,
// as on the machines that wrote it.
func typeString(s string) (Dtype, error) {
	unknown := fmt.Errorf("dtype %q is not supported: %s", s, wantNumbers)
	code, known := s, false
	if name, ok := numpyNames[s]; ok {
		code = name
	} else if d, ok := plainType(s); ok {
		return d, nil
	} else if unit, ok := strings.CutPrefix(s, "datetime64"); ok {
		code = "M8" + unit
	} else if unit, ok := strings.CutPrefix(s, "timedelta64"); ok {
		code = "m8" + unit
	}
	big := strings.HasPrefix(code, ">")
	if code != "" && strings.IndexByte("<>|=", code[0]) >= 0 {
		code = code[1:]
	}
	if sized, ok := numpyLetters[code]; ok {
		code = sized
	}
	if len(code) < 2 {
		return Dtype{}, unknown
	}
	letter, digits := code[0], code[1:]
	if letter == 'M' || letter == 'm' {
		return timeString(s, code, big)
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n < 1 || n > MaxItemBytes {
		return Dtype{}, unknown
	}
	d := Dtype{}
	if d, known = sizedType(letter, int(n)); !known {
		return Dtype{}, unknown
	}
	return d.withOrder(big), nil
}

// sizedType returns the type of a letter and a number of bytes, or of characters.
func sizedType(letter byte, n int) (d Dtype, known bool) {
	switch letter {
	case 'b':
		return plain(aBool, letter, 1), n == 1
	case 'i':
		return plain(anInt, letter, n), n == 1 || n == 2 || n == 4 || n == 8
	case 'u':
		return plain(aUint, letter, n), n == 1 || n == 2 || n == 4 || n == 8
	case 'f':
		return plain(aFloat, letter, n), n == 2 || n == 4 || n == 8
	case 'c':
		return plain(aComplex, letter, n), n == 8 || n == 16
	case 'S', 'a':
		return raw(aString, 'S', n), true
	case 'V':
		return raw(aRaw, letter, n), true
	case 'U':
		return Dtype{fmt.Sprintf("'<U%d'", n), 4 * n, []Unit{{Bytes: 4, Count: n}}, someText}, 4*n <= MaxItemBytes
	}
	return Dtype{}, false
}

// timeString parses the code of s, such as 'M8[25s]'.
func timeString(s, code string, big bool) (Dtype, error) {
	unknown := fmt.Errorf("dtype %q is not a date that NumPy writes", s)
	if code[1] != '8' {
		return Dtype{}, unknown
	}
	unit, factor := "generic", int64(1)
	if rest := code[2:]; rest != "" {
		if rest[0] != '[' || rest[len(rest)-1] != ']' || len(rest) < 3 {
			return Dtype{}, unknown
		}
		unit = rest[1 : len(rest)-1]
		letters := strings.TrimLeft(unit, "0123456789")
		if digits := unit[:len(unit)-len(letters)]; digits != "" {
			n, err := strconv.ParseInt(digits, 10, 32)
			if err != nil || n < 1 {
				return Dtype{}, unknown
			}
			factor, unit = n, letters
		}
	}
	d, err := timeOf(code[0], unit, factor)
	return d.withOrder(big), err
}

// isOneNumber reports whether elements are a number, a boolean or a date.
func (d Dtype) isOneNumber() bool {
	return d.IsNumber() || d.class == aComplex || d.class == aTime
}
