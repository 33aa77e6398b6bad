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
