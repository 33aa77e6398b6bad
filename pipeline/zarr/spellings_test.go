package zarr

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// escaped writes each character of each string in a document as an escape, which JSON allows.
func escaped(doc string) []byte {
	inString := regexp.MustCompile(`"[^"\\]*"`)
	return inString.ReplaceAllFunc([]byte(doc), func(b []byte) []byte {
		var out strings.Builder
		for _, r := range string(b[1 : len(b)-1]) {
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		return []byte(`"` + out.String() + `"`)
	})
}

// A document whose strings consist of escapes is the same document.
func TestStringsAreComparedAfterDecoding(t *testing.T) {
	for _, doc := range []string{gfs, strings.NewReplacer(`"end"`, `"start"`, `"little"`, `"big"`, `"float32"`, `"complex64"`, `"NaN"`, `["NaN", "-Infinity"]`, `"separator": "/"`, `"separator": "."`).Replace(gfs)} {
		want, err := ParseV3("zarr.json", []byte(doc))
		require.NoError(t, err)
		got, err := ParseV3("zarr.json", escaped(doc))
		require.NoError(t, err)
		want.Attributes, got.Attributes = nil, nil // kept in their encoded form
		require.Equal(t, want, got)
	}
	v2 := strings.NewReplacer(`"order": "C"`, `"order": "F", "dimension_separator": "/"`, `"filters": null`, `"filters": [{"id": "delta", "dtype": ">f4"}, {"id": "fletcher32", "location": "end"}]`).Replace(era)
	want, err := ParseV2(".zarray", []byte(v2), nil)
	require.NoError(t, err)
	got, err := ParseV2(".zarray", escaped(v2), nil)
	require.NoError(t, err)
	require.Equal(t, want, got)

	isArray, err := KindV3("zarr.json", escaped(gfs))
	require.NoError(t, err)
	require.True(t, isArray)
	_, err = ParseV3Group("zarr.json", escaped(`{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline", "metadata": {"t": {}}}}`))
	require.NoError(t, err)
	a, err := ParseV3("zarr.json", edited(t, strings.Replace(gfs, `"fill_value": "NaN"`, `"fill_value": 0`, 1), `"float32"`, `"int16"`))
	require.NoError(t, err)
	for text, want := range map[string]byte{`{"_Unsigned": "true"}`: 'u', `{"_Unsigned": "false"}`: 'i'} {
		a.Attributes = escaped(text)
		p, err := PackingOf(a, nil, nil)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("'<%c2'", want), p.Type.Descr)
	}
}

// What NumPy's dtype() accepts for a number, and the type string that it returns (numpy 1.24 on
// 64-bit Linux).
func TestNumPyTypeNames(t *testing.T) {
	for want, names := range map[string]string{
		"|b1": "bool bool_ bool8 ? b1 |b1 <b1 <? >?", "|i1": "int8 byte b i1 |b", "|u1": "uint8 ubyte B u1",
		"<i2": "int16 short h i2 =i2 |i2", "<i4": "int32 intc i <i i4 i04 |i4", "<i8": "int64 int int_ int0 long longlong intp l q p i8",
		"<u2": "uint16 ushort H u2 |u2", "<u4": "uint32 uintc I u4", "<u8": "uint64 uint uint0 ulong ulonglong uintp L Q P u8",
		"<f2": "float16 half e f2", "<f4": "float32 single f f4 =f4 |f4", "<f8": "float64 double float float_ d f8", ">f8": ">d >f8",
		"<c8": "complex64 csingle singlecomplex F c8", "<c16": "complex128 cdouble complex complex_ cfloat D c16",
		"<M8[ns]": "datetime64[ns] M8[ns] =M8[ns] |M8[ns]", "<m8[s]": "timedelta64[s] m8[s]", "<M8": "datetime64 M8", "|S5": "S5 a5 |S5", "|V4": "V4", "<U3": "U3",
	} {
		for name := range strings.FieldsSeq(names) {
			got, err := typeString(name)
			require.NoError(t, err, name)
			wanted, err := typeString(want)
			require.NoError(t, err)
			require.Equal(t, wanted, got, name)
			require.Equal(t, strings.HasPrefix(want, ">"), got.Big(), name)
			if got.isOneNumber() && !got.Big() {
				v3, err := dtypeV3(value(`"` + name + `"`))
				require.NoError(t, err, name)
				require.Equal(t, got, v3)
			}
		}
	}
	for _, name := range []string{"", "<", "Float32", "<float32", ">int", "!f4", "b4", "b8", "f12", "f16", "g", "longdouble", "i3", "c4", " i4", "i4 ", "i+4", "2i4", "(2,)i4", "i4,f4", "u", "U", "S", "V", "O", "object", "str", "S0"} {
		_, err := typeString(name)
		require.ErrorContains(t, err, "is not supported", name)
	}
	_, err := dtypeV3(value(`">f4"`))
	require.ErrorContains(t, err, "is not supported") // byte order comes from a codec there
}

// The types of a filter may be written in any of these ways.
func TestNumPyTypeNamesInFilters(t *testing.T) {
	for _, name := range []string{"float32", "<f4", "f", "=f4", "single"} {
		a, err := ParseV2(".zarray", edited(t, era, `"filters": null`, `"filters": [{"id": "fixedscaleoffset", "dtype": "`+name+`", "astype": "uint16", "scale": 2, "offset": 0}]`), nil)
		require.NoError(t, err)
		require.Equal(t, Step{Codec: FixedScaleOffset, From: Number{'u', 2, false}, To: Number{'f', 4, false}, Scale: 2}, a.Chain.Steps[1])
	}
}

// chainV3 returns the chain of a version 3 array with these codecs.
func chainV3(t *testing.T, codecs string) (Chain, error) {
	from, to := strings.Index(gfs, `"codecs": [{"name": "sharding`), strings.Index(gfs, `"attributes"`)
	a, err := ParseV3("zarr.json", []byte(gfs[:from]+`"codecs": `+codecs+`, `+gfs[to:]))
	if err != nil {
		return Chain{}, err
	}
	return a.Chain, nil
}

func TestCodecNames(t *testing.T) {
	little := `{"name": "bytes", "configuration": {"endian": "little"}}`
	for name, c := range map[string]struct{ codecs, same string }{
		"the old name of bytes":            {`[{"name": "endian", "configuration": {"endian": "little"}}, "zstd"]`, `[` + little + `, "zstd"]`},
		"bitround is undone by nothing":    {`[{"name": "bitround", "configuration": {"keepbits": 9}}, ` + little + `]`, `[` + little + `]`},
		"without a prefix":                 {`[` + little + `, {"name": "zlib", "configuration": {"level": 1}}]`, `[` + little + `, {"name": "numcodecs.zlib"}]`},
		"an address":                       {`[` + little + `, {"name": "https://codec.zarr.dev/numcodecs/bz2"}]`, `[` + little + `, "numcodecs.bz2"]`},
		"zarrita writes none":              {`[]`, `[` + little + `]`},
		"zarrita writes compressors alone": {`[{"name": "gzip", "configuration": {"level": 5}}]`, `[` + little + `, "gzip"]`},
		"no bytes between two":             {`[{"name": "transpose", "configuration": {"order": [2, 1, 0]}}, "crc32c"]`, `[{"name": "transpose", "configuration": {"order": [2, 1, 0]}}, ` + little + `, "crc32c"]`},
		"an empty configuration":           {`[{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c", "configuration": null}]`, `[` + little + `, "crc32c"]`},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := chainV3(t, c.same)
			require.NoError(t, err)
			got, err := chainV3(t, c.codecs)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	_, err := chainV3(t, `["pcodec"]`)
	require.EqualError(t, err, `zarr: zarr.json: codecs[0]: codec "pcodec" is not supported: rewrite the array with bytes, and blosc, zstd or gzip`)
}

func TestFillValueSpellings(t *testing.T) {
	v2, v3 := func(v value, d Dtype) ([]byte, error) { return fillV2(v, d) }, func(v value, d Dtype) ([]byte, error) { return fillV3(v, d) }
	for name, fill := range map[string]func(v value, d Dtype) ([]byte, error){"version 2": v2, "version 3": v3} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				dtype, same string
				spellings   []string
			}{
				{"<i2", `7`, []string{`"7"`, `7.0`, `"7.0"`, `70e-1`, `0.7e1`, `7.000e0`}},
				{"<i2", `0`, []string{`null`, `"0"`, `0.0`, `-0.0`, `0e999999999999999999999`}},
				{"<i8", `-9223372036854775808`, []string{`"-9223372036854775808"`, `-9223372036854775808.0`}},
				{"<u8", `18446744073709551615`, []string{`"18446744073709551615"`, `1.8446744073709551615e19`}},
				{"<f4", `1.5`, []string{`"1.5"`, `15e-1`, `"0x3fc00000"`}},
				{"<f8", `"NaN"`, []string{`NaN`, `"nan"`, `"0x7ff8000000000000"`}},
				{"<f2", `"-Infinity"`, []string{`-Infinity`, `"-inf"`}},
				{"|b1", `true`, []string{`1`, `1.0`, `"1"`, `"true"`}},
				{"|b1", `false`, []string{`0`, `null`, `"false"`}},
				{"<c8", `[2, 0]`, []string{`2`, `"2"`, `["2", 0.0]`}},
				{"<M8[s]", `"NaT"`, []string{`-9223372036854775808`}},
				{"<M8[s]", `60`, []string{`"60"`, `6e1`}},
			} {
				d, err := typeString(c.dtype)
				require.NoError(t, err)
				want, err := fill(value(c.same), d)
				require.NoError(t, err, c.same)
				for _, s := range c.spellings {
					got, err := fill(value(s), d)
					require.NoError(t, err, s)
					require.Equal(t, want, got, s)
				}
			}
			for dtype, wrong := range map[string]string{
				"<i2": `32768 -32769 1.5 5e-1 "" "x" "0x7" NaN "NaN" Infinity -Infinity {} [] true`, "|u1": `-1 256 1e300 "-1"`,
				"<f4": `"0x100000000" "one" true 1e39`, "|b1": `2 "yes" 0.5`, "<c8": `[1] "x" true`, "<M8[s]": `"now" 1.5`,
			} {
				d, err := typeString(dtype)
				require.NoError(t, err)
				for s := range strings.FieldsSeq(wrong) {
					_, err := fill(value(s), d)
					require.Error(t, err, "%s of %s", s, dtype)
				}
			}
		})
	}
}

func TestVersion3Draft(t *testing.T) {
	_, err := KindV3("zarr.json", []byte(`{"zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0", "metadata_encoding": "https://purl.org/zarr/spec/protocol/core/3.0", "metadata_key_suffix": ".json", "extensions": []}`))
	require.ErrorContains(t, err, "is of a draft of version 3")
}
