package zarr

import (
	"fmt"
	"strconv"
	"strings"
)

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
