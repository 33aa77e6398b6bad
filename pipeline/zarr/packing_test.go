package zarr

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// packedV2 returns a version 2 array with these attributes, as xarray writes it.
func packedV2(t *testing.T, dtype, fill, attributes string) *Array {
	t.Helper()
	doc := fmt.Sprintf(`{"zarr_format": 2, "shape": [9], "chunks": [3], "dtype": %q, "compressor": null, "fill_value": %s, "order": "C", "filters": null}`, dtype, fill)
	a, err := ParseV2(".zarray", []byte(doc), []byte(attributes))
	require.NoError(t, err)
	return a
}

func TestPackingsFollowCFAttributes(t *testing.T) {
	named := `"_ARRAY_DIMENSIONS": ["time"]`
	for name, c := range map[string]struct {
		dtype, fill, attributes string
		descr                   string
		scale, offset           float32
		missing                 string
	}{
		"nothing":                       {"<i2", "null", `{}`, "'<i2'", 1, 0, ""},
		"scale and offset":              {"<i2", "null", `{"scale_factor": 0.01, "add_offset": 273.15}`, "'<i2'", 0.01, 273.15, ""},
		"lists of one":                  {"<i2", "null", `{"scale_factor": [0.01], "add_offset": [-2]}`, "'<i2'", 0.01, -2, ""},
		"_FillValue":                    {">i2", "null", `{"_FillValue": -32768}`, "'<i2'", 1, 0, "0080"},
		"two of them":                   {"<i2", "null", `{"_FillValue": -1, "missing_value": [7, -1.0]}`, "'<i2'", 1, 0, "0700 ffff"},
		"fill_value of xarray":          {"<i2", "-1", `{` + named + `}`, "'<i2'", 1, 0, "ffff"},
		"fill_value of others":          {"<i2", "-1", `{}`, "'<i2'", 1, 0, ""},
		"fill_value null":               {"<i2", "null", `{` + named + `}`, "'<i2'", 1, 0, ""},
		"_FillValue beside fill_value":  {"<i2", "0", `{"_FillValue": 9, ` + named + `}`, "'<i2'", 1, 0, "0900"},
		"a value that no element has":   {"|u1", "null", `{"_FillValue": -1, "missing_value": 0.5}`, "'|u1'", 1, 0, ""},
		"NaN of whole numbers":          {"<i4", "null", `{"missing_value": NaN}`, "'<i4'", 1, 0, ""},
		"unsigned":                      {"|i1", "null", `{"_Unsigned": "true", "_FillValue": -1}`, "'|u1'", 1, 0, "ff"},
		"unsigned, said as such":        {">i2", "null", `{"_Unsigned": "true", "_FillValue": 65535}`, "'<u2'", 1, 0, "ffff"},
		"signed":                        {"<u2", "null", `{"_Unsigned": "false", "_FillValue": 65535}`, "'<i2'", 1, 0, "ffff"},
		"NaN":                           {"<f4", `"NaN"`, `{` + named + `}`, "'<f4'", 1, 0, ""},
		"a large number":                {"<f4", "null", `{"_FillValue": 1e20, "missing_value": 9.969209968386869e36}`, "'<f4'", 1, 0, "0000f07c ec78ad60"},
		"zeros have both signs":         {"<f4", "null", `{"_FillValue": -0.0}`, "'<f4'", 1, 0, "00000000 00000080"},
		"infinity":                      {"<f8", "null", `{"missing_value": -Infinity}`, "'<f8'", 1, 0, "000000000000f0ff"},
		"base64 of version 3":           {"<f4", "null", `{"_FillValue": "AAAAAICHw8A="}`, "'<f4'", 1, 0, "003c1cc6"},
		"base64 of NaN":                 {"<f4", "null", `{"_FillValue": "AAAAAAAA+H8="}`, "'<f4'", 1, 0, ""},
		"more than the type has":        {"<f2", "null", `{"_FillValue": 1e20}`, "'<f2'", 1, 0, ""},
		"half of a float":               {"<f2", "null", `{"_FillValue": -2}`, "'<f2'", 1, 0, "00c0"},
		"bool":                          {"|b1", "true", `{` + named + `, "_Unsigned": "true"}`, "'|b1'", 1, 0, ""},
		"a number of 64 bits":           {"<u8", "null", `{"_FillValue": 18446744073709551615}`, "'<u8'", 1, 0, "ffffffffffffffff"},
		"other attributes do not count": {"<i2", "null", `{"valid_range": "x", "units": "K"}`, "'<i2'", 1, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := PackingOf(packedV2(t, c.dtype, c.fill, c.attributes), nil, nil)
			require.NoError(t, err)
			require.Equal(t, c.descr, p.Type.Descr)
			require.Equal(t, c.scale, p.Scale)
			require.Equal(t, c.offset, p.Offset)
			var missing []string
			for _, m := range p.Missing {
				missing = append(missing, hex.EncodeToString(m))
			}
			require.Equal(t, c.missing, strings.Join(missing, " "))
		})
	}
}

func TestFlagsOverrideAttributes(t *testing.T) {
	a := packedV2(t, "<i2", "null", `{"scale_factor": "a", "add_offset": 3, "units": "<K>", "_FillValue": 5}`)
	scale := 0.1
	p, err := PackingOf(a, &scale, nil)
	require.NoError(t, err)
	require.Equal(t, []float32{0.1, 3}, []float32{p.Scale, p.Offset})
	require.Equal(t, `{"units": "<K>"}`, string(p.Others(a.Attributes)))
	require.Equal(t, "0000c07f", hex.EncodeToString(p.Convert([]byte{5, 0})))
}

func TestInvalidPackingsAreRefusedWithExplanation(t *testing.T) {
	for _, c := range []struct{ dtype, attributes, says string }{
		{"<M8[h]", `{}`, "elements are of type '<M8[h]', and --as float32 is for whole numbers, floating point and bool"},
		{"<c8", `{}`, "'<c8'"},
		{"|S3", `{}`, "'|S3'"},
		{"|V3", `{"_Unsigned": "true"}`, "'|V3'"},
		{"<i2", `{"scale_factor": "x"}`, `its attribute scale_factor ("x") must be a number: give it as --scale`},
		{"<i2", `{"scale_factor": [1, 2]}`, "its attribute scale_factor"},
		{"<i2", `{"scale_factor": 0}`, "must not be 0"},
		{"<i2", `{"scale_factor": 1e-60}`, "must not be 0"},
		{"<i2", `{"add_offset": 1e60}`, "its attribute add_offset (1e60) must be a finite float32: give another one as --offset"},
		{"<i2", `{"add_offset": NaN}`, "its attribute add_offset"},
		{"<i2", `{"_Unsigned": 3}`, `its attribute _Unsigned must be "true" or "false"`},
		{"<i2", `{"_FillValue": "much"}`, `its attribute _FillValue ("much") is not a number`},
		{"<f4", `{"missing_value": {}}`, "its attribute missing_value"},
		{"<f4", `{"missing_value": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]}`, "missing_value has more than 16 items"},
	} {
		_, err := PackingOf(packedV2(t, c.dtype, "null", c.attributes), nil, nil)
		require.ErrorContains(t, err, c.says, c.attributes)
	}
}

// The kind has the type that elements are taken as, the fill value, scale, offset and missing
// values, and the type of records is float32. Cubes may differ in all of that: a hash stands for it
// then.
func TestKindDescribesElementConversion(t *testing.T) {
	of := func(attributes string, edit func(*spec.Zarr)) string {
		a := packedV2(t, ">i2", "9", attributes)
		z := spec.Zarr{Crop: []spec.DimValue{{Dim: "", Value: 4}}, As: spec.AsFloat32}
		if edit != nil {
			edit(&z)
		}
		return cutOf(t, z, CutField{Name: "sat", Path: "sat", Array: a}).Kind()
	}
	a := of(`{"scale_factor": 0.01, "_FillValue": [-1, 3]}`, nil)
	require.Equal(t, `{"a":[0],"arrays":[["sat","sat","'<f4'",[4],[1],[null],""]],"as":[["'<i2'","0900","0ad7233c","00000000",["0300","ffff"]]],"b":[9],"brick":[3],"dims":[""],`+
		`"edge":"drop","jitter":false,"kept":"","list":"","missing":"fill","s":[4],"stack":false,"wrap":[false]}`, a)
	fields, _, err := FieldsOf(a)
	require.NoError(t, err)
	require.Equal(t, "'<f4'", fields[0].Descr)
	b := of(`{"scale_factor": 0.02}`, nil)
	raw := of(`{}`, func(z *spec.Zarr) { z.As = "" })
	require.True(t, SameKind(a, b))
	require.False(t, SameKind(a, raw))
	require.NotContains(t, raw, `"as"`)
	mixed := MixedKind([]string{a, b, a})
	both := `[["'<i2'","0900","0ad7233c","00000000",["0300","ffff"]]]` + "\n" + `[["'<i2'","0900","0ad7a33c","00000000",[]]]` + "\n"
	require.Contains(t, mixed, fmt.Sprintf(`"as":"%x"`, sha256.Sum256([]byte(both))))
	require.NotEqual(t, mixed, MixedKind([]string{b, a}))
	require.True(t, SameKind(mixed, a))
	require.Equal(t, a, MixedKind([]string{a, a}))
	require.Equal(t, of(`{}`, func(z *spec.Zarr) { z.Scale = []spec.FieldNumber{{Field: "sat", Value: 0.02}} }), b)
	_, err = NewCut(spec.Zarr{Crop: []spec.DimValue{{Value: 4}}, As: spec.AsFloat32, Offset: []spec.FieldNumber{{Field: "hrv", Value: 1}}}, nil, []CutField{{Name: "sat", Array: packedV2(t, "<i2", "0", "{}")}})
	require.ErrorContains(t, err, "--scale or --offset names hrv, which is not an array that is read")
}

// Arrays of different types all become float32, and can be stacked; absent chunks have the
// converted fill value.
func TestConvertedFieldsHaveOneType(t *testing.T) {
	z := twoDims
	z.As, z.Stack = spec.AsFloat32, true
	wide := arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")
	wide.Type, wide.Fill = named("float64"), make([]byte, 8)
	small := arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")
	small.Type = named("int16")
	c := cutOf(t, z, CutField{Name: "a", Array: wide}, CutField{Name: "b", Array: small})
	require.Equal(t, "'<f4'", c.Row().Descr)
	require.EqualValues(t, 2*4*5*4, c.Row().Bytes)
	require.Equal(t, math.Float32bits(7), uint32(c.Fill(1)[2])<<16|uint32(c.Fill(1)[3])<<24)
}
