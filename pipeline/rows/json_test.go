package rows

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// one returns J of one value of a type.
func one(t *testing.T, typ *Type, value any) string {
	s := Schema{{"x", typ}}
	line, err := NewJSONL([]Column{{Name: "x", Path: []int{0}, Type: typ}}, 0).Append(nil, table(s, []any{value}), 0, 0)
	require.NoError(t, err)
	text := strings.TrimSuffix(strings.TrimPrefix(string(line), `{"x":`), "}\n")
	require.Equal(t, `{"x":`+text+"}\n", string(line))
	return text
}

func TestTextOfEachType(t *testing.T) {
	dec := func(precision, scale int) *Type { return &Type{Kind: Decimal, Precision: precision, Scale: scale} }
	stamp := func(u Unit, utc bool) *Type { return &Type{Kind: Timestamp, Unit: u, UTC: utc} }
	clock := func(u Unit) *Type { return &Type{Kind: Time, Unit: u} }
	inf := math.Inf(1)
	nested := structOf(Field{"a", tInt32}, Field{"b", structOf(Field{"c", nullable(tString)})})
	big128, _ := new(big.Int).SetString("-170141183460469231731687303715884105728", 10)
	for _, c := range []struct {
		name  string
		typ   *Type
		value any
		want  string
	}{
		{"null", nullable(tInt32), nil, `null`},
		{"true", tBool, true, `true`},
		{"false", tBool, false, `false`},
		{"the smallest int64", tInt64, int64(math.MinInt64), `-9223372036854775808`},
		{"the largest uint64", tUint64, uint64(math.MaxUint64), `18446744073709551615`},
		{"a uint32 in four bytes", tUint32, uint64(math.MaxUint32), `4294967295`},
		{"an empty list", listOf(tInt32), []any{}, `[]`},
		{"a list with a null", listOf(nullable(tString)), []any{"a", nil, ""}, `["a",null,""]`},
		{"lists of lists", listOf(listOf(tInt32)), []any{ints(1, 2), ints(), ints(3)}, `[[1,2],[],[3]]`},
		{"a struct in the schema's order", structOf(Field{"b", tInt32}, Field{"a", tInt32}), ints(1, 2), `{"b":1,"a":2}`},
		{"a struct without fields", structOf(), []any{}, `{}`},
		{"a struct in a struct, with a null", nested, []any{int64(1), []any{nil}}, `{"a":1,"b":{"c":null}}`},
		{"names are escaped", structOf(Field{"a\"\n", tInt32}), ints(1), `{"a\"\n":1}`},
		{"a map is a list of its entries", mapOf(tString, nullable(tInt32)), [][2]any{{"b", int64(1)}, {"a", nil}, {"b", int64(2)}}, `[["b",1],["a",null],["b",2]]`},
		{"an empty map", mapOf(tString, tInt32), [][2]any{}, `[]`},
		{"escapes", tString, "\" \\ \b \t \n \f \r / < > & \u2028 \x7f é 😀", `"\" \\ \b \t \n \f \r / < > & ` + "\u2028 \x7f" + ` é 😀"`},
		{"other control characters", tString, "\x00\x01\x0b\x1f", `"\u0000\u0001\u000b\u001f"`},
		{"the replacement character itself is UTF-8", tString, "\ufffd", "\"\ufffd\""},
		{"a float", tDouble, 0.1, `0.1`},
		{"a whole float", tDouble, 3.0, `3.0`},
		{"negative zero", tDouble, math.Copysign(0, -1), `-0.0`},
		{"the first exponent", tDouble, 1e16, `1e+16`},
		{"before the first exponent", tDouble, 9999999999999998.0, `9999999999999998.0`},
		{"the last small positional number", tDouble, 1e-4, `0.0001`},
		{"the first small exponent", tDouble, 1e-5, `1e-05`},
		{"an exponent of three digits", tDouble, 1.5e-300, `1.5e-300`},
		{"the smallest", tDouble, 5e-324, `5e-324`},
		{"the digits of a float32 are those of its width", tFloat, float64(float32(0.1)), `0.1`},
		{"a float32 just below 1e-4", tFloat, float64(float32(1e-4)), `0.0001`},
		{"a float32 at 1e16", tFloat, float64(float32(1e16)), `1e+16`},
		{"the smallest float32", tFloat, 1e-45, `1e-45`},
		{"a float16", tHalf, float16(0x2e66), `0.1`},
		{"the largest float16", tHalf, 65504.0, `65500.0`},
		{"the smallest float16", tHalf, math.Ldexp(1, -24), `6e-08`},
		{"NaN", tHalf, math.NaN(), `"NaN"`},
		{"infinity", tFloat, inf, `"Infinity"`},
		{"negative infinity", tDouble, -inf, `"-Infinity"`},
		{"a negative decimal below 1", dec(3, 2), big.NewInt(-5), `"-0.05"`},
		{"a decimal without a scale", dec(3, 0), big.NewInt(-50), `"-50"`},
		{"zero with a scale", dec(3, 2), new(big.Int), `"0.00"`},
		{"a scale larger than the precision", dec(1, 4), big.NewInt(7), `"0.0007"`},
		{"the smallest of 128 bits", dec(38, 10), big128, `"-17014118346046923173168730371.5884105728"`},
		{"the epoch", tDate, int64(0), `"1970-01-01"`},
		{"the first day", tDate, int64(-719528), `"0000-01-01"`},
		{"before the first day", tDate, int64(-719529), `"-719529"`},
		{"a leap day", tDate, int64(19782), `"2024-02-29"`},
		{"the last day", tDate, int64(2932896), `"9999-12-31"`},
		{"after the last day", tDate, int64(2932897), `"2932897"`},
		{"a time of seconds", clock(Seconds), int64(86399), `"23:59:59"`},
		{"a time of milliseconds", clock(Millis), int64(1), `"00:00:00.001"`},
		{"a time of microseconds", clock(Micros), int64(3600e6 + 60e6 + 1e6), `"01:01:01.000000"`},
		{"a time of nanoseconds", clock(Nanos), int64(1), `"00:00:00.000000001"`},
		{"a time after the day", clock(Millis), int64(86400e3), `"86400000"`},
		{"a time before the day", clock(Millis), int64(-1), `"-1"`},
		{"a timestamp without a zone", stamp(Millis, false), int64(1), `"1970-01-01T00:00:00.001"`},
		{"a timestamp of UTC", stamp(Micros, true), int64(-1), `"1969-12-31T23:59:59.999999Z"`},
		{"a timestamp of seconds", stamp(Seconds, true), int64(0), `"1970-01-01T00:00:00Z"`},
		{"a timestamp of nanoseconds", stamp(Nanos, false), int64(1), `"1970-01-01T00:00:00.000000001"`},
		{"a timestamp after the year 9999", stamp(Seconds, true), int64(253402300800), `"253402300800"`},
		{"a timestamp before the year 0", stamp(Millis, true), int64(-62167219200001), `"-62167219200001"`},
		{"an INT96", stamp(Nanos, false), int96{1, 2440589}, `"1970-01-02T00:00:00.000000001"`},
		{"an INT96 out of the day", stamp(Nanos, false), int96{86400e9, 2440588}, `"0 86400000000000"`},
		{"an INT96 out of the years", stamp(Nanos, false), int96{5, -1}, `"-2440589 5"`},
		{"a UUID", tUUID, "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", `"00112233-4455-6677-8899-aabbccddeeff"`},
		{"binary", tBinary, "\x00\x01\x02\x03", `"AAECAw=="`},
		{"empty binary", tBinary, "", `""`},
		{"binary of one size", &Type{Kind: Binary, Size: 1}, "\xff", `"/w=="`},
		{"the text of a number", &Type{Kind: Number}, "123456789012345678901234567890", `123456789012345678901234567890`},
		{"text that is not a number", &Type{Kind: Number}, "01", `"01"`},
		{"JSON as it is", &Type{Kind: JSON}, `{"a": [1, 2]}`, `{"a": [1, 2]}`},
		{"an array", arrayOf(tInt32), ndarray{Dims{2, 2}, ints(1, 2, 3, 4)}, `[[1,2],[3,4]]`},
		{"an array without axes", arrayOf(tFloat), ndarray{Dims{}, []any{2.0}}, `2.0`},
		{"an empty axis", arrayOf(tInt32), ndarray{Dims{2, 0}, nil}, `[[],[]]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, one(t, c.typ, c.value))
		})
	}
}

func TestDamagedValues(t *testing.T) {
	for _, c := range []struct {
		name  string
		typ   *Type
		value any
		want  string
	}{
		{"a string", tString, "a\xffb", "column x: the string is not UTF-8: byte 0xff at 1 of 3"},
		{"a surrogate", tString, "\xed\xa0\x80", "column x: the string is not UTF-8: byte 0xed at 0 of 3"},
		{"in a list", listOf(tString), []any{"", "\x80"}, "column x.1: the string is not UTF-8: byte 0x80 at 0 of 1"},
		{"in a struct", structOf(Field{"b", tString}), []any{"\x80"}, "column x.b: the string is not UTF-8: byte 0x80 at 0 of 1"},
		{"in a map", mapOf(tString, tString), [][2]any{{"", "\x80"}}, "column x.0: the string is not UTF-8: byte 0x80 at 0 of 1"},
		{"text instead of a number", &Type{Kind: Number}, "\x80", "column x: the string is not UTF-8: byte 0x80 at 0 of 1"},
		{"JSON", &Type{Kind: JSON}, "{", "column x: the text is not JSON"},
		{"JSON of two lines", &Type{Kind: JSON}, "[\n]", "column x: the JSON text has the byte 0x0a at 1"},
		{"a decimal beyond all types", &Type{Kind: Decimal, Precision: 9}, new(big.Int).Lsh(big.NewInt(1), 1100), "column x: a decimal has more than 308 digits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewJSONL([]Column{{Name: "x", Type: c.typ}}, 0)
			got, err := p.Append([]byte("before"), table(Schema{{"x", c.typ}}, []any{c.value}), 0, 0)
			var damage *DamageError
			require.ErrorAs(t, err, &damage)
			require.EqualError(t, err, c.want)
			require.Equal(t, "before", string(got))
		})
	}
}

func TestAllFloat16(t *testing.T) {
	for raw := range uint64(1 << 15) {
		want := twinFloat(float16(uint16(raw)), 16)
		if got := string(appendFloat(nil, raw, 16)); got != want {
			t.Fatalf("%#04x: %s instead of %s", raw, got, want)
		}
		if raw <= 0x7c00 {
			want = strings.Replace(`-`+want, `-"`, `"-`, 1)
		}
		if got := string(appendFloat(nil, raw|1<<15, 16)); got != want {
			t.Fatalf("%#04x: %s instead of %s", raw|1<<15, got, want)
		}
	}
}

func TestFloatsAreThoseOfTheTwin(t *testing.T) {
	check := func(raw uint64) {
		require.Equal(t, twinFloat(math.Float64frombits(raw), 64), string(appendFloat(nil, raw, 64)), "%#x", raw)
		v := float64(math.Float32frombits(uint32(raw)))
		require.Equal(t, twinFloat(v, 32), string(appendFloat(nil, uint64(uint32(raw)), 32)), "%#x", uint32(raw))
	}
	for e := -30; e < 30; e++ { // on both sides of the powers of ten
		for d := range uint64(5) {
			check(math.Float64bits(math.Pow10(e)) + d - 2)
			check(uint64(math.Float32bits(float32(math.Pow10(e)))) + d - 2)
		}
	}
	before := len(ties)
	for m := range 60 { // halfway between two decimals of one digit less
		for k := range uint64(40) {
			v := math.Ldexp(float64(1<<m+2*k+1), -m)
			check(math.Float64bits(v))
			check(uint64(math.Float32bits(float32(v))))
		}
	}
	require.Greater(t, len(ties), before+10)
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.Uint64().Draw(t, "bits")
		require.Equal(t, twinFloat(math.Float64frombits(raw), 64), string(appendFloat(nil, raw, 64)))
		v := float64(math.Float32frombits(uint32(raw)))
		require.Equal(t, twinFloat(v, 32), string(appendFloat(nil, uint64(uint32(raw)), 32)))
	})
}

// drawType draws a type, nested at most depth levels.
func drawType(t *rapid.T, depth int) *Type {
	kinds := []Kind{Bool, Int, Float, String, Binary, UUID, Decimal, Date, Time, Timestamp, Number, JSON, NDArray}
	if depth > 0 {
		kinds = append(kinds, List, Map, Struct, List, Map, Struct)
	}
	typ := &Type{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Nullable: rapid.Bool().Draw(t, "nullable")}
	switch typ.Kind {
	case Int:
		typ.Bits, typ.Unsigned = rapid.SampledFrom([]int{8, 16, 32, 64}).Draw(t, "bits"), rapid.Bool().Draw(t, "unsigned")
	case Float:
		typ.Bits = rapid.SampledFrom([]int{16, 32, 64}).Draw(t, "bits")
	case Binary:
		typ.Size = rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(t, "size")
	case Decimal:
		typ.Precision, typ.Scale = rapid.IntRange(1, 100).Draw(t, "precision"), rapid.IntRange(0, 100).Draw(t, "scale")
	case Time, Timestamp:
		typ.Unit = rapid.SampledFrom([]Unit{Seconds, Millis, Micros, Nanos}).Draw(t, "unit")
		typ.UTC = typ.Kind == Timestamp && rapid.Bool().Draw(t, "UTC")
		if typ.Kind == Timestamp && typ.Unit == Nanos && rapid.Bool().Draw(t, "INT96") {
			typ.Size = 12 // for drawValue: a vector has one width
		}
	case NDArray:
		typ.Fields = []Field{{"", rapid.SampledFrom([]*Type{tBool, tInt32, tUint64, tHalf, tDouble}).Draw(t, "element")}}
	case List:
		typ.Fields = []Field{{"", drawType(t, depth-1)}}
	case Map:
		typ.Fields = []Field{{"", drawType(t, depth-1)}, {"", drawType(t, depth-1)}}
	case Struct:
		names := []string{"bytes", "path", "a", "B c", "é\"\n", "", "0"}
		for _, name := range names[:rapid.IntRange(0, len(names)).Draw(t, "fields")] {
			typ.Fields = append(typ.Fields, Field{name, drawType(t, depth-1)})
		}
	}
	return typ
}

// drawValue draws a value of a type. Strings are sometimes not UTF-8, if damage permits it.
func drawValue(t *rapid.T, typ *Type, damage bool) any {
	if typ.Nullable && rapid.IntRange(0, 3).Draw(t, "null") == 0 {
		return nil
	}
	number := func() any {
		if typ.Unsigned {
			return rapid.Uint64Range(0, math.MaxUint64>>(64-typ.Bits)).Draw(t, "uint")
		}
		return rapid.Int64Range(-1<<(typ.Bits-1), 1<<(typ.Bits-1)-1).Draw(t, "int")
	}
	near := func(limits ...int64) int64 {
		if rapid.Bool().Draw(t, "anywhere") {
			return rapid.Int64().Draw(t, "int")
		}
		return rapid.SampledFrom(limits).Draw(t, "limit") + rapid.Int64Range(-100, 100).Draw(t, "near")
	}
	switch typ.Kind {
	case Bool:
		return rapid.Bool().Draw(t, "bool")
	case Int:
		return number()
	case Float:
		switch typ.Bits {
		case 16:
			return float16(rapid.Uint16().Draw(t, "half"))
		case 32:
			return float64(math.Float32frombits(rapid.Uint32().Draw(t, "float")))
		}
		return math.Float64frombits(rapid.Uint64().Draw(t, "double"))
	case String:
		if damage && rapid.IntRange(0, 9).Draw(t, "damaged") == 0 {
			return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		}
		if rapid.Bool().Draw(t, "plain") {
			return strings.Repeat("plain text ", rapid.IntRange(0, 5).Draw(t, "words")) + rapid.StringMatching(`[ -~\n]*`).Draw(t, "text")
		}
		return rapid.String().Draw(t, "string")
	case Binary:
		return string(rapid.SliceOfN(rapid.Byte(), typ.Size, max(typ.Size, 40*(1-min(typ.Size, 1)))).Draw(t, "bytes"))
	case UUID:
		return string(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
	case Decimal:
		n := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "negative") {
			n.Neg(n)
		}
		return n
	case Date:
		return near(0, firstDay, lastDay)
	case Time:
		return near(0, 86400*typ.Unit.perSecond())
	case Timestamp:
		if typ.Size == 12 {
			return int96{near(0, 86400e9), int64(int32(near(unixJulian, unixJulian+firstDay, unixJulian+lastDay)))}
		}
		if typ.Unit == Nanos {
			return near(0)
		}
		return near(0, firstDay*86400*typ.Unit.perSecond(), (lastDay+1)*86400*typ.Unit.perSecond())
	case Number:
		return rapid.StringMatching(`-?[0-9]{0,3}(\.[0-9]{0,2})?([eE][+-]?[0-9]{0,2})?`).Draw(t, "number")
	case JSON:
		return rapid.SampledFrom([]string{"null", `{"a": [1, 2.50, "x\u0000"]}`, " 1 "}).Draw(t, "JSON")
	case NDArray:
		a := ndarray{dims: Dims{}}
		n := 1
		for range rapid.IntRange(0, 3).Draw(t, "axes") {
			a.dims = append(a.dims, int32(rapid.IntRange(0, 3).Draw(t, "length")))
			n *= int(a.dims[len(a.dims)-1])
		}
		for range n {
			a.items = append(a.items, drawValue(t, typ.Fields[0].Type, damage))
		}
		return a
	case List:
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			list = append(list, drawValue(t, typ.Fields[0].Type, damage))
		}
		return list
	case Map:
		entries := [][2]any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			entries = append(entries, [2]any{drawValue(t, typ.Fields[0].Type, damage), drawValue(t, typ.Fields[1].Type, damage)})
		}
		return entries
	}
	fields := []any{}
	for _, f := range typ.Fields {
		fields = append(fields, drawValue(t, f.Type, damage))
	}
	return fields
}

// drawTable draws a schema, some rows, and a batch that stores them in some way.
func drawTable(t *rapid.T, damage bool) (Schema, [][]any, *Batch) {
	var s Schema
	var values [][]any
	rows := rapid.IntRange(1, 4).Draw(t, "rows")
	for i := range rapid.IntRange(1, 4).Draw(t, "columns") {
		s = append(s, Field{string(rune('a' + i)), drawType(t, 3)})
		var column []any
		for range rows {
			column = append(column, drawValue(t, s[i].Type, damage))
		}
		values = append(values, column)
	}
	b := tableAs(s, func(most int) int { return rapid.IntRange(0, most-1).Draw(t, "layout") }, values...)
	return s, values, b
}

// Lines are those of the slow twin, however the values are stored, and encoding/json reads them.
func TestLinesAreThoseOfTheTwin(t *testing.T) { rapid.Check(t, linesAreThoseOfTheTwin) }

func FuzzLines(f *testing.F) { f.Fuzz(rapid.MakeFuzz(linesAreThoseOfTheTwin)) }

func linesAreThoseOfTheTwin(t *rapid.T) {
	s, values, b := drawTable(t, true)
	columns, err := Resolve(s, nil)
	require.NoError(t, err)
	require.NoError(t, b.Check(columns))
	p := NewJSONL(columns, 0)
	row := structOf(s...)
	for r := range b.Rows {
		var x []any
		for i := range s {
			x = append(x, values[i][r])
		}
		want, ok := twin(row, x)
		got, err := p.Append([]byte("before"), b, r, 0)
		size, sizeErr := p.Size(b, r, 0)
		if !ok {
			var damage *DamageError
			require.ErrorAs(t, err, &damage)
			require.Equal(t, err, sizeErr)
			require.Equal(t, "before", string(got))
			continue
		}
		require.NoError(t, err)
		require.NoError(t, sizeErr)
		require.Equal(t, "before"+want+"\n", string(got))
		require.Equal(t, int64(len(want)+1), size)
		require.True(t, json.Valid([]byte(want)))
		for limit := int64(1); limit <= size; limit += max(1, size/7) {
			got, err := NewJSONL(columns, limit).Append([]byte("before"), b, r, 0)
			if limit < size {
				require.ErrorContains(t, err, "longer than --max-record")
				require.Equal(t, "before", string(got))
			} else {
				require.NoError(t, err)
			}
		}
	}
}

func FuzzString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"q\\ \b\f\n\r\t\x01 é 中 😀", "12345678\"", "\xff", strings.Repeat("é", 9)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		want, ok := twinString(string(s))
		got, gotOK := appendString([]byte("x"), s)
		require.Equal(t, ok, gotOK)
		if !ok {
			require.Equal(t, "x", string(got))
			return
		}
		require.Equal(t, "x"+want, string(got))
		var back string
		require.NoError(t, json.Unmarshal(got[1:], &back))
		require.Equal(t, string(s), back)
	})
}

func FuzzFloat(f *testing.F) {
	for _, v := range []float64{0, 0.1, 1e16, 1e-5, 5e-324, math.MaxFloat64, math.NaN(), math.Inf(-1)} {
		f.Add(math.Float64bits(v))
		f.Add(uint64(math.Float32bits(float32(v))))
	}
	f.Fuzz(func(t *testing.T, raw uint64) {
		require.Equal(t, twinFloat(math.Float64frombits(raw), 64), string(appendFloat(nil, raw, 64)))
		v := float64(math.Float32frombits(uint32(raw)))
		require.Equal(t, twinFloat(v, 32), string(appendFloat(nil, uint64(uint32(raw)), 32)))
	})
}

func FuzzDecimal(f *testing.F) {
	f.Add([]byte{0x80}, true, 2)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xff}, false, 0)
	f.Fuzz(func(t *testing.T, raw []byte, bigEndian bool, scale int) {
		scale = scale & 0xff
		if len(raw) == 0 || len(raw) > maxDecimalBytes-8 {
			return
		}
		n := new(big.Int)
		for i := range raw {
			c := raw[i]
			if !bigEndian {
				c = raw[len(raw)-1-i]
			}
			if i == 0 {
				n.SetInt64(int64(int8(c)))
			} else {
				n.Lsh(n, 8).Or(n, big.NewInt(int64(c)))
			}
		}
		got, err := appendDecimal(nil, raw, bigEndian, scale)
		require.NoError(t, err)
		require.Equal(t, twinDecimal(n, scale), string(got))
	})
}
