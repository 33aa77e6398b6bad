package rows

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
)

// appendFloat appends a float of 16, 32 or 64 bits: the fewest digits that read back as the same
// value of its width, as Python's repr writes them.
func appendFloat(dst []byte, raw uint64, width int) []byte {
	var v float64
	switch width {
	case 64:
		v = math.Float64frombits(raw)
	case 32:
		v = float64(math.Float32frombits(uint32(raw)))
	default:
		v = float16(uint16(raw))
	}
	switch {
	case v != v:
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	positional := isPositional(v, width)
	at := len(dst)
	switch {
	case width == 16:
		return appendFloat16(dst, uint16(raw), v)
	case positional:
		dst = strconv.AppendFloat(dst, v, 'f', -1, width)
		if bytes.IndexByte(dst[at:], '.') < 0 {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	return strconv.AppendFloat(dst, v, 'e', -1, width)
}

// isPositional reports whether a number whose fewest digits are d.dd × 10^e has -4 ≤ e < 16. The
// numbers that have 1 as their digits and -4 or 16 as their exponent are those nearest to 10^-4 and
// 10^16, and smaller numbers have smaller digits: so two comparisons are enough.
func isPositional(v float64, width int) bool {
	v = math.Abs(v)
	if width == 32 {
		return v == 0 || v >= float64(float32(1e-4)) && v < float64(float32(1e16))
	}
	return v == 0 || v >= 1e-4 && v < 1e16
}

// float16 returns the value of a float of 16 bits: 1 bit sign, 5 bits exponent, 10 bits mantissa.
func float16(raw uint16) float64 {
	exponent, mantissa := int(raw>>10&0x1f), float64(raw&0x3ff)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(mantissa, -24)
	case 0x1f:
		if mantissa != 0 {
			return math.NaN()
		}
		v = math.Inf(1)
	default:
		v = math.Ldexp(1024+mantissa, exponent-25)
	}
	if raw>>15 != 0 {
		return math.Copysign(v, -1)
	}
	return v
}

// appendFloat16 appends a finite float of 16 bits. Values, and the numbers halfway between them,
// are multiples of 2^-25 below 2^16, so that integers hold them exactly.
func appendFloat16(dst []byte, raw uint16, v float64) []byte {
	if raw>>15 != 0 {
		dst = append(dst, '-')
	}
	raw &= 0x7fff
	if raw == 0 {
		return append(dst, "0.0"...)
	}
	v = math.Abs(v)
	value := uint64(math.Ldexp(v, 25))
	// What is between low and high is read as v, the ends only if the mantissa is even.
	low := (uint64(math.Ldexp(float16(raw-1), 25)) + value) / 2
	high := value + (value - low)
	if raw&0x3ff == 0 && raw>>10 > 1 { // the next value is twice as far away as the one before
		high = value + 2*(value-low)
	}
	even := raw&1 == 0
	e := exponentOf(value)
	for digits := 1; ; digits++ {
		// The candidates are the multiples of 10^(e-digits+1) before and after v. Both v and the
		// candidates are scaled by 2^25 · 10^up / 10^down.
		up, down := uint64(1), uint64(1)
		for range max(0, digits-1-e) {
			up *= 10
		}
		for range max(0, e-digits+1) {
			down *= 10
		}
		unit := down << 25
		below := value * up / unit
		best, distance := uint64(0), uint64(math.MaxUint64)
		for n := below; n <= below+1; n++ {
			at := n * unit
			inside := at > low*up && at < high*up || even && (at == low*up || at == high*up)
			d := max(at, value*up) - min(at, value*up)
			if inside && (d < distance || d == distance && n&1 == 0) { // of two equally near, the even one
				best, distance = n, d
			}
		}
		if distance != math.MaxUint64 {
			return appendDigits(dst, best, e-digits+1)
		}
	}
}

// exponentOf returns e with 10^e ≤ value/2^25 < 10^(e+1).
func exponentOf(value uint64) int {
	e, power := 0, uint64(1<<25)
	for value >= 10*power {
		e, power = e+1, power*10
	}
	for value < power {
		e, value = e-1, value*10
	}
	return e
}

// appendDigits appends n × 10^exponent, n > 0.
func appendDigits(dst []byte, n uint64, exponent int) []byte {
	for n%10 == 0 {
		n, exponent = n/10, exponent+1
	}
	var buf [20]byte
	digits := strconv.AppendUint(buf[:0], n, 10)
	e := exponent + len(digits) - 1
	switch {
	case e < -4 || e >= 16:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		dst = append(dst, 'e')
		if e < 0 {
			dst, e = append(dst, '-'), -e
		} else {
			dst = append(dst, '+')
		}
		return append(dst, '0'+byte(e/10), '0'+byte(e%10))
	case e < 0:
		dst = append(dst, "0."...)
		for range -e - 1 {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	for i := 0; i <= e || i < len(digits); i++ {
		if i == e+1 {
			dst = append(dst, '.')
		}
		if i < len(digits) {
			dst = append(dst, digits[i])
		} else {
			dst = append(dst, '0')
		}
	}
	if len(digits) <= e+1 {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendDecimal appends a decimal as a string: its unscaled value is raw, in two's complement.
func appendDecimal(dst, raw []byte, bigEndian bool, scale int) ([]byte, error) {
	var limbs [maxDecimalBytes / 8]uint64 // the lowest first
	n, negative, err := magnitude(&limbs, raw, bigEndian)
	if err != nil {
		return dst, err
	}
	const perLimb = 1e19
	var buf [maxDecimalBytes*8*30103/100000 + 20]byte
	at := len(buf)
	for n > 0 {
		rest := uint64(0)
		for i := n - 1; i >= 0; i-- {
			limbs[i], rest = bits.Div64(rest, limbs[i], perLimb)
		}
		for n > 0 && limbs[n-1] == 0 {
			n--
		}
		for i := 0; i < 19 && (n > 0 || rest > 0); i++ {
			at--
			buf[at] = '0' + byte(rest%10)
			rest /= 10
		}
	}
	digits := buf[at:]
	dst = append(dst, '"')
	if negative {
		dst = append(dst, '-')
	}
	whole := len(digits) - scale
	if whole <= 0 {
		dst = append(dst, '0')
	} else {
		dst = append(dst, digits[:whole]...)
		digits = digits[whole:]
	}
	if scale > 0 {
		dst = append(dst, '.')
		for range -whole {
			dst = append(dst, '0')
		}
		dst = append(dst, digits...)
	}
	return append(dst, '"'), nil
}

// maxDecimalBytes bounds the unscaled values of decimals: 308 digits, maxDigits, have 1024 bits.
const maxDecimalBytes = 136

// magnitude writes the absolute value of raw to limbs, and returns how many of them are used.
func magnitude(limbs *[maxDecimalBytes / 8]uint64, raw []byte, bigEndian bool) (n int, negative bool, err error) {
	if len(raw) == 0 {
		return 0, false, damaged("a decimal has no bytes")
	}
	top := raw[len(raw)-1]
	if bigEndian {
		top = raw[0]
	}
	negative = top&0x80 != 0
	fill := byte(0)
	if negative {
		fill = 0xff
	}
	for len(raw) > maxDecimalBytes-8 { // bytes that only repeat the sign
		last := raw[len(raw)-1]
		if bigEndian {
			last = raw[0]
		}
		if last != fill {
			return 0, false, damaged("a decimal has more than %d digits", maxDigits)
		}
		if bigEndian {
			raw = raw[1:]
		} else {
			raw = raw[:len(raw)-1]
		}
	}
	n = (len(raw) + 7) / 8
	for i := range n {
		var limb [8]byte
		for j := range limb {
			c := fill
			if at := 8*i + j; at < len(raw) {
				if c = raw[at]; bigEndian {
					c = raw[len(raw)-1-at]
				}
			}
			limb[j] = c
		}
		limbs[i] = binary.LittleEndian.Uint64(limb[:])
	}
	if negative {
		carry := uint64(1)
		for i := range n {
			limbs[i], carry = bits.Add64(^limbs[i], 0, carry)
		}
		if carry != 0 { // cannot happen: only zero, which is not negative, overflows
			limbs[n], n = 1, n+1
		}
	}
	for n > 0 && limbs[n-1] == 0 {
		n--
	}
	return n, negative, nil
}
