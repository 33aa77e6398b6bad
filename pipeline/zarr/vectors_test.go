package zarr

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors are computed by integration/reference/grids.py, from the specification alone.
type vectors struct {
	Grids []struct {
		Axes      [][8]int64 `json:"axes"`
		Cover     bool       `json:"cover"`
		Seed      uint64     `json:"seed,string"`
		Epoch     uint64     `json:"epoch"`
		Cube      string     `json:"cube"`
		Positions [][]int64  `json:"positions"`
		Origins   [][]int64  `json:"origins"`
		Moved     [][]int64  `json:"moved"`
		Rows      [][]int64  `json:"rows"`
		ByChunks  []int64    `json:"by_bricks"`
	} `json:"grids"`
	Fills [][3]string `json:"fills"`
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(b, &v))
	require.Greater(t, len(v.Grids), 30)
	require.Greater(t, len(v.Fills), 50)
	return v
}

func TestCropsAreNumberedAndMovedLikeReference(t *testing.T) {
	for _, g := range readVectors(t).Grids {
		axes := make([]Axis, len(g.Axes))
		for d, a := range g.Axes {
			axes[d] = Axis{Name: "d", Length: a[0], Edge: a[1], Begin: a[2], End: a[3], Crop: a[4], Step: a[5], Stride: a[6], Wrap: a[7] == 1}
		}
		o, err := NewOrigins(axes, g.Cover)
		require.NoError(t, err, "%+v", axes)
		require.EqualValues(t, len(g.Positions), o.Total(), "%+v", axes)
		jitter := NewJitter(g.Seed, g.Epoch, g.Cube)
		place := make([]int64, len(axes))
		seen := map[int64]bool{}
		for i, want := range g.Positions {
			o.Position(place, uint64(i))
			require.Equal(t, want, place, "%+v", axes)
			require.EqualValues(t, i, o.Ordinal(place))
			seen[o.Row(place)] = true
			o.Origin(place, place)
			require.Equal(t, g.Origins[i], place)
			require.NoError(t, CheckRow(axes, place))
			jitter.Move(place, axes, uint64(i))
			require.Equal(t, g.Moved[i], place)
			require.NoError(t, CheckRow(axes, place))
		}
		require.Len(t, seen, len(g.Positions), "each row once")
		var rows []int64
		for _, r := range g.Rows {
			rows = append(rows, r...)
		}
		if len(axes) == 0 {
			continue
		}
		got, err := ListOrder(axes, rows)
		require.NoError(t, err)
		require.Equal(t, g.ByChunks, got)
	}
}

func TestFillValuesHaveNumPyBits(t *testing.T) {
	for _, f := range readVectors(t).Fills {
		got, err := fillV3(value(f[1]), named(f[0]))
		require.NoError(t, err, "%v", f)
		require.Equal(t, f[2], hex.EncodeToString(got), "%v", f)
	}
}

func TestFillValuesOfOtherTypes(t *testing.T) {
	v2 := func(s string) Dtype { d, err := typeString(s); require.NoError(t, err); return d }
	structure, err := dtypeV2(value(`[["a", ">i2"], ["b", "|u1", [2]]]`), 0)
	require.NoError(t, err)
	for _, c := range []struct {
		parse func(value, Dtype) ([]byte, error)
		d     Dtype
		text  string
		want  string
	}{
		{fillV3, named("bool"), "true", "01"},
		{fillV3, named("int16"), "-2", "feff"},
		{fillV3, named("uint64"), "18446744073709551615", "ffffffffffffffff"},
		{fillV3, named("float32"), `"0x7fc00001"`, "0100c07f"},
		{fillV3, named("float64"), `"0xfff0000000000001"`, "010000000000f0ff"},
		{fillV3, named("bfloat16"), "1.0", "803f"},
		{fillV3, named("bfloat16"), `"NaN"`, "c07f"},
		{fillV3, named("bfloat16"), "1.00390625", "803f"},
		{fillV3, named("bfloat16"), "1.01171875", "823f"},
		{fillV3, named("complex64"), `[1, "NaN"]`, "0000803f0000c07f"},
		{fillV3, raw(aRaw, 'V', 3), "[1, 2, 255]", "0102ff"},
		{fillV3, plain(aTime, 'M', 8), `"NaT"`, "0000000000000080"},
		{fillV2, v2(">i4"), "null", "00000000"},
		{fillV2, v2(">i4"), "258", "02010000"},
		{fillV2, v2("<i4"), "258.0", "02010000"},
		{fillV2, v2("<f4"), "NaN", "0000c07f"},
		{fillV2, v2("|b1"), "0", "00"},
		{fillV2, v2("|S4"), `"YWI="`, "61620000"},
		{fillV2, v2("<U2"), `"ä"`, "e400000000000000"},
		{fillV2, v2("|V2"), `"AQI="`, "0102"},
		{fillV2, structure, `"AQIDBA=="`, "02010304"},
	} {
		got, err := c.parse(value(c.text), c.d)
		require.NoError(t, err, "%s as %s", c.text, c.d.Descr)
		require.Equal(t, c.want, hex.EncodeToString(got), "%s as %s", c.text, c.d.Descr)
	}
	for _, c := range []struct {
		parse func(value, Dtype) ([]byte, error)
		d     Dtype
		text  string
	}{
		{fillV3, named("bool"), "2"}, {fillV3, named("int8"), "128"}, {fillV3, named("uint8"), "-1"}, {fillV3, named("int32"), "1.5"},
		{fillV3, named("float16"), "65520"}, {fillV3, named("float32"), "1e39"}, {fillV3, named("float32"), `"0x1ffffffff"`},
		{fillV3, named("float32"), `"not"`}, {fillV3, named("complex64"), "[1]"}, {fillV3, named("bfloat16"), "3.4e38"},
		{fillV3, raw(aRaw, 'V', 3), "[1, 2]"}, {fillV3, raw(aRaw, 'V', 1), "[256]"},
		{fillV2, v2("|S2"), `"YWJj"`}, {fillV2, v2("|V4"), `"AQI="`}, {fillV2, v2("<U1"), `"ab"`}, {fillV2, v2("<i4"), "1.5"}, {fillV2, v2("|S2"), `"?"`},
	} {
		_, err := c.parse(value(c.text), c.d)
		require.Error(t, err, "%s as %s", c.text, c.d.Descr)
	}
}

// named returns a v3 data type without a configuration.
func named(name string) Dtype {
	d, ok := plainType(name)
	if !ok {
		panic("there is no data type " + name)
	}
	return d
}
