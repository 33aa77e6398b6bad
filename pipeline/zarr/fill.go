package zarr

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Fill values are parsed to the bytes of an element, little-endian. Absent chunks consist of them.

// fillV3 parses the fill value of a v3 document. null, which zarrita and GDAL write, is zero.
func fillV3(v value, d Dtype) ([]byte, error) {
	if v.isNull() {
		return make([]byte, d.ItemBytes), nil
	}
	switch d.class {
	case aComplex:
		return fillComplex(v, d)
	case aRaw:
		items, err := v.list(d.ItemBytes)
		if err != nil || len(items) != d.ItemBytes {
			return nil, fmt.Errorf("must be a list of %d bytes, is %s", d.ItemBytes, v.shown())
		}
		fill := make([]byte, d.ItemBytes)
		for i, item := range items {
			n, err := item.integer(0, 255)
			if err != nil {
				return nil, fmt.Errorf("item %d %w", i, err)
			}
			fill[i] = byte(n)
		}
		return fill, nil
	}
	return fillNumber(v, d.class, d.ItemBytes)
}

// fillV2 parses the fill value of a v2 document. null leaves absent elements undefined; here they
// are zero.
func fillV2(v value, d Dtype) ([]byte, error) {
	if v.isNull() {
		return make([]byte, d.ItemBytes), nil
	}
	switch d.class {
	case aComplex:
		return fillComplex(v, d)
	case someText:
		return fillText(v, d)
	case aRaw, aString, someFields:
		return fillBase64(v, d)
	}
	return fillNumber(v, d.class, d.ItemBytes)
}

// fillText parses that of a string of fixed length: each character takes 4 bytes, padded with
// zeros.
func fillText(v value, d Dtype) ([]byte, error) {
	if v.isNumber(0) {
		return make([]byte, d.ItemBytes), nil
	}
	s, err := v.text()
	if err != nil {
		return nil, err
	}
	runes := []rune(s)
	if 4*len(runes) > d.ItemBytes {
		return nil, fmt.Errorf("must have at most %d characters, has %d", d.ItemBytes/4, len(runes))
	}
	fill := make([]byte, d.ItemBytes)
	for i, r := range runes {
		binary.LittleEndian.PutUint32(fill[4*i:], uint32(r))
	}
	return fill, nil
}

// fillBase64 parses that of bytes and structures, in their stored form.
func fillBase64(v value, d Dtype) ([]byte, error) {
	if v.isNumber(0) {
		return make([]byte, d.ItemBytes), nil
	}
	s, err := v.text()
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("must be base64: %w", err)
	}
	if len(b) > d.ItemBytes || len(b) < d.ItemBytes && d.class != aString {
		return nil, fmt.Errorf("must be the base64 of %d bytes, is of %d", d.ItemBytes, len(b))
	}
	fill := make([]byte, d.ItemBytes)
	copy(fill, b)
	d.reverse(fill)
	return fill, nil
}

// reverse converts an element from its stored form to little-endian.
func (d Dtype) reverse(element []byte) {
	for _, u := range d.Units {
		if u.Big {
			for i := 0; i < u.Count; i++ {
				one := element[i*u.Bytes : (i+1)*u.Bytes]
				for a, z := 0, len(one)-1; a < z; a, z = a+1, z-1 {
					one[a], one[z] = one[z], one[a]
				}
			}
		}
		element = element[u.Count*u.Bytes:]
	}
}

// fillComplex parses a list of real and imaginary part, or a real number.
func fillComplex(v value, d Dtype) ([]byte, error) {
	if v[0] != '[' {
		b, err := fillNumber(v, aFloat, d.ItemBytes/2)
		return append(b, make([]byte, d.ItemBytes/2)...), err
	}
	parts, err := v.list(2)
	if err != nil || len(parts) != 2 {
		return nil, fmt.Errorf("must be a list of two numbers, is %s", v.shown())
	}
	var fill []byte
	for _, p := range parts {
		b, err := fillNumber(p, aFloat, d.ItemBytes/2)
		if err != nil {
			return nil, err
		}
		fill = append(fill, b...)
	}
	return fill, nil
}

// fillNumber parses that of a single number.
func fillNumber(v value, c class, bytes int) ([]byte, error) {
	bits, err := numberBits(v, c, bytes)
	if err != nil {
		return nil, err
	}
	fill := make([]byte, 8)
	binary.LittleEndian.PutUint64(fill, bits)
	return fill[:bytes], nil
}

// numberBits returns the bits of a number, in the lowest bytes. The number may be in a string, as
// n5-zarr writes it.
func numberBits(v value, c class, bytes int) (uint64, error) {
	wrong := fmt.Errorf("%s is not a value of this data type", v.shown())
	if v[0] == '"' {
		text, err := v.text()
		if err != nil {
			return 0, wrong
		}
		if bits, ok := namedBits(text, c, bytes); ok {
			return bits, nil
		}
		if v, err = open([]byte(text)); err != nil || v[0] == '"' {
			return 0, wrong
		}
	}
	digits, whole := v.whole()
	switch c {
	case aBool:
		switch {
		case v.isTrue() || digits == "1":
			return 1, nil
		case v.isFalse() || digits == "0":
			return 0, nil
		}
	case anInt, aTime:
		if n, err := strconv.ParseInt(digits, 10, 8*bytes); err == nil && whole {
			return uint64(n), nil
		}
	case aUint:
		if n, err := strconv.ParseUint(digits, 10, 8*bytes); err == nil && whole {
			return n, nil
		}
	case aFloat, aBrainFloat:
		if bits, ok := namedBits(string(v), c, bytes); ok {
			return bits, nil // without quotes, as Python writes it
		}
		if f, ok := formatOf(c, bytes); ok && v.kind() == "a number" {
			return f.round(v)
		}
	}
	return 0, wrong
}

// namedBits returns the bits of a value that is given by name, or in hex.
func namedBits(text string, c class, bytes int) (bits uint64, ok bool) {
	switch c {
	case aTime:
		return 1 << 63, text == "NaT"
	case aFloat, aBrainFloat:
		if f, ok := formatOf(c, bytes); ok {
			return f.named(text)
		}
	}
	return 0, false
}

// floatFormat is a binary format like those of IEEE 754: a sign, exponent bits, mantissa bits.
type floatFormat struct{ exponent, mantissa int }

// formatOf returns the format of floats of that many bytes.
func formatOf(c class, bytes int) (floatFormat, bool) {
	if c == aBrainFloat {
		return floatFormat{8, 7}, true
	}
	f, ok := map[int]floatFormat{2: {5, 10}, 4: {8, 23}, 8: {11, 52}}[bytes]
	return f, ok
}

func (f floatFormat) bits() int        { return 1 + f.exponent + f.mantissa }
func (f floatFormat) infinity() uint64 { return (1<<f.exponent - 1) << f.mantissa }

// named returns the bits of "NaN", "Infinity" and "-Infinity", also in the spelling of Python and
// C, and of "0x…".
func (f floatFormat) named(text string) (uint64, bool) {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		bits, err := strconv.ParseUint(digits, 16, f.bits())
		return bits, err == nil
	}
	switch strings.ToLower(text) {
	case "nan":
		return f.infinity() | 1<<(f.mantissa-1), true
	case "infinity", "inf":
		return f.infinity(), true
	case "-infinity", "-inf":
		return 1<<(f.bits()-1) | f.infinity(), true
	}
	return 0, false
}

// round returns the nearest number of the format, ties to even. As in other readers, the number is
// first rounded to a float64.
func (f floatFormat) round(v value) (uint64, error) {
	x, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return 0, fmt.Errorf("%s is out of range", v.shown())
	}
	if f.mantissa == 52 {
		return math.Float64bits(x), nil
	}
	sign := uint64(0)
	if math.Signbit(x) {
		sign = 1 << (f.bits() - 1)
	}
	if x == 0 {
		return sign, nil
	}
	// In units of the last place in x's binade, or of the smallest number of the format.
	_, e := math.Frexp(x)
	e = max(e-1, 2-1<<(f.exponent-1))
	units := uint64(math.RoundToEven(math.Ldexp(math.Abs(x), f.mantissa-e)))
	// If the mantissa is rounded up to the next binade, it carries into the exponent.
	bits := units + uint64(e+1<<(f.exponent-1)-2)<<f.mantissa
	if bits >= f.infinity() {
		return 0, fmt.Errorf("%s is out of range", v.shown())
	}
	return sign | bits, nil
}
