package rows

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
	"unicode/utf8"
)

// twin returns J of a value of tests, slowly and simply; ok is false if it is damaged.
func twin(t *Type, x any) (text string, ok bool) {
	if x == nil {
		return "null", true
	}
	switch t.Kind {
	case Bool, Int:
		return fmt.Sprint(x), true
	case Float:
		return twinFloat(x.(float64), t.Bits), true
	case String:
		return twinString(x.(string))
	case Binary:
		return `"` + base64.StdEncoding.EncodeToString([]byte(x.(string))) + `"`, true
	case UUID:
		s := fmt.Sprintf("%x", x.(string))
		return `"` + strings.Join([]string{s[:8], s[8:12], s[12:16], s[16:20], s[20:]}, "-") + `"`, true
	case Decimal:
		return twinDecimal(x.(*big.Int), t.Scale), true
	case Date:
		day := time.Unix(0, 0).UTC().AddDate(0, 0, int(min(max(x.(int64), -1e7), 1e7)))
		if day.Year() < 0 || day.Year() > 9999 {
			return fmt.Sprintf(`"%d"`, x), true
		}
		return day.Format(`"2006-01-02"`), true
	case Time:
		n, per := x.(int64), int64(math.Pow10(int(t.Unit)))
		if n < 0 || n/per >= 86400 {
			return fmt.Sprintf(`"%d"`, n), true
		}
		return time.Unix(n/per, n%per*(1e9/per)).UTC().Format(`"15:04:05` + twinPoint(t.Unit) + `"`), true
	case Timestamp:
		return twinTimestamp(t, x), true
	case Number:
		if isNumber([]byte(x.(string))) {
			return x.(string), true
		}
		return twinString(x.(string))
	case JSON:
		return x.(string), true
	case NDArray:
		a := x.(ndarray)
		return twinArray(t.Fields[0].Type, a.dims, &a.items), true
	}
	var parts []string
	add := func(part string, partOK bool) string {
		ok = ok && partOK
		return part
	}
	ok = true
	switch x := x.(type) {
	case [][2]any:
		for _, e := range x {
			parts = append(parts, "["+add(twin(t.Fields[0].Type, e[0]))+","+add(twin(t.Fields[1].Type, e[1]))+"]")
		}
	case []any:
		for i, e := range x {
			if t.Kind == List {
				parts = append(parts, add(twin(t.Fields[0].Type, e)))
			} else {
				parts = append(parts, add(twinString(t.Fields[i].Name))+":"+add(twin(t.Fields[i].Type, e)))
			}
		}
	}
	text = strings.Join(parts, ",")
	if t.Kind == Struct {
		return "{" + text + "}", ok
	}
	return "[" + text + "]", ok
}

func twinString(s string) (string, bool) {
	var b strings.Builder
	for _, r := range s {
		switch short := strings.IndexRune("\"\\\b\t\n\f\r", r); {
		case short >= 0:
			b.WriteString(`\` + `"\btnfr`[short:short+1])
		case r < 0x20:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`, utf8.ValidString(s)
}

func twinDecimal(n *big.Int, scale int) string {
	digits := new(big.Int).Abs(n).String()
	for len(digits) <= scale {
		digits = "0" + digits
	}
	if scale > 0 {
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if n.Sign() < 0 {
		digits = "-" + digits
	}
	return `"` + digits + `"`
}

func twinPoint(u Unit) string { return strings.TrimSuffix("."+strings.Repeat("0", int(u)), ".") }

func twinTimestamp(t *Type, x any) string {
	stored := fmt.Sprint(x)
	var moment time.Time
	inDay := true
	switch x := x.(type) {
	case int96:
		stored = fmt.Sprintf("%d %d", x.julian-2440588, x.nanos)
		inDay = x.nanos >= 0 && x.nanos < 86400e9
		moment = time.Unix((x.julian-2440588)*86400, x.nanos)
	case int64:
		per := int64(math.Pow10(int(t.Unit)))
		if t.Unit == Seconds && (x > 1e12 || x < -1e12) {
			inDay = false
		}
		moment = time.Unix(x/per, x%per*(1e9/per))
	}
	moment = moment.UTC()
	if !inDay || moment.Year() < 0 || moment.Year() > 9999 {
		return `"` + stored + `"`
	}
	text := moment.Format("2006-01-02T15:04:05" + twinPoint(t.Unit))
	if t.UTC {
		text += "Z"
	}
	return `"` + text + `"`
}

func twinArray(t *Type, dims Dims, items *[]any) string {
	if len(dims) == 0 {
		text, _ := twin(t, (*items)[0])
		*items = (*items)[1:]
		return text
	}
	parts := make([]string, dims[0])
	for i := range parts {
		parts[i] = twinArray(t, dims[1:], items)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// ties has the numbers for which twinFloat found two equally near decimals; the even one was taken.
var ties []float64

// twinFloat tries all numbers of 1, 2, … digits next to v.
func twinFloat(v float64, width int) string {
	switch {
	case v != v:
		return `"NaN"`
	case math.IsInf(v, 1):
		return `"Infinity"`
	case math.IsInf(v, -1):
		return `"-Infinity"`
	case v == 0:
		return strings.TrimPrefix(fmt.Sprintf("%v.0", v), "+")
	}
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	exact := new(big.Rat).SetFloat64(v)
	e := int(math.Floor(math.Log10(v))) - 2
	for ten(e+1).Cmp(exact) <= 0 {
		e++
	}
	for digits := 1; ; digits++ {
		unit := ten(e - digits + 1)
		q := new(big.Rat).Quo(exact, unit)
		below := new(big.Int).Quo(q.Num(), q.Denom())
		var best *big.Int
		var distance *big.Rat
		for _, n := range []*big.Int{below, new(big.Int).Add(below, big.NewInt(1))} {
			at := new(big.Rat).Mul(new(big.Rat).SetInt(n), unit)
			if readBack(at, width) != v {
				continue
			}
			d := new(big.Rat).Sub(at, exact)
			d.Abs(d)
			switch {
			case best == nil || d.Cmp(distance) < 0:
				best, distance = n, d
			case d.Cmp(distance) == 0:
				ties = append(ties, v)
				if n.Bit(0) == 0 {
					best = n
				}
			}
		}
		if best != nil {
			return sign + twinDigits(best, e-digits+1)
		}
	}
}

// ten returns 10^e.
func ten(e int) *big.Rat {
	p := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(e, -e))), nil)
	r := new(big.Rat).SetInt(p)
	if e < 0 {
		r.Inv(r)
	}
	return r
}

// readBack returns the value that a decimal is read as: the nearest, of two the even one.
func readBack(at *big.Rat, width int) float64 {
	switch width {
	case 64:
		v, _ := at.Float64()
		return v
	case 32:
		v, _ := at.Float32()
		return float64(v)
	}
	approx, _ := at.Float64()
	if approx >= 65520 {
		return math.Inf(1)
	}
	best, distance := 0, (*big.Rat)(nil)
	low := 0
	for step := 1 << 14; step > 0; step /= 2 {
		if low+step < 0x7c00 && float16(uint16(low+step)) <= approx {
			low += step
		}
	}
	for raw := max(low-1, 0); raw <= min(low+2, 0x7bff); raw++ {
		d := new(big.Rat).Sub(new(big.Rat).SetFloat64(float16(uint16(raw))), at)
		d.Abs(d)
		if distance == nil || d.Cmp(distance) < 0 || d.Cmp(distance) == 0 && raw%2 == 0 {
			best, distance = raw, d
		}
	}
	return float16(uint16(best))
}

// twinDigits returns n × 10^exponent as Python's repr writes it.
func twinDigits(n *big.Int, exponent int) string {
	digits := n.String()
	for strings.HasSuffix(digits, "0") {
		digits, exponent = digits[:len(digits)-1], exponent+1
	}
	e := exponent + len(digits) - 1
	if e < -4 || e >= 16 {
		text := digits[:1]
		if len(digits) > 1 {
			text += "." + digits[1:]
		}
		return text + fmt.Sprintf("e%+03d", e)
	}
	for len(digits) <= e {
		digits += "0"
	}
	if e < 0 {
		return "0." + strings.Repeat("0", -e-1) + digits
	}
	whole, rest := digits[:e+1], digits[e+1:]
	if rest == "" {
		rest = "0"
	}
	return whole + "." + rest
}
