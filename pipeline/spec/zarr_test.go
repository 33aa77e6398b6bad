package spec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDimensionNumbersAreByNameOrPosition(t *testing.T) {
	list, err := ParseDims("time=24,y=128")
	require.NoError(t, err)
	require.Equal(t, []DimValue{{"time", 24}, {"y", 128}}, list)
	list, err = ParseDims("24,128,1")
	require.NoError(t, err)
	require.Equal(t, []DimValue{{"", 24}, {"", 128}, {"", 1}}, list)
	for text, want := range map[string]string{
		"":               "is not a number of a dimension",
		"time":           "is not a number of a dimension",
		"time=0":         "is not a number of a dimension",
		"time=-1":        "is not a number of a dimension",
		"=3":             "is not a number of a dimension",
		"time=3:9":       "write time=24; --select time=3:9 chooses the region",
		"time=3,4":       "name all dimensions, or none",
		"4,time=3":       "name all dimensions, or none",
		"time=3,time=4":  "names time twice",
		"time=3.5":       "is not a number of a dimension",
		"1e99":           "is not a number of a dimension",
		"time=3,,y=4":    "is not a number of a dimension",
		longList(33, ""): "33 dimensions",
	} {
		_, err := ParseDims(text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}

func longList(n int, prefix string) string {
	text := prefix + "1"
	for range n - 1 {
		text += ",1"
	}
	return text
}

func TestSelectionsAreRegionsOrPositions(t *testing.T) {
	for text, want := range map[string]Selection{
		"time=0:70": {Dim: "time", End: 70}, "time=5:": {Dim: "time", Begin: 5, End: -1}, "time=:9": {Dim: "time", End: 9}, "time=:": {Dim: "time", End: -1},
		"channel=3": {Dim: "channel", End: -1, Places: []int64{3}}, "channel=3,0,3": {Dim: "channel", End: -1, Places: []int64{3, 0, 3}},
	} {
		s, err := ParseSelection(text)
		require.NoError(t, err, text)
		require.Equal(t, want, s, text)
	}
	for text, want := range map[string]string{
		"time": "selects nothing", "time=": "selects nothing", "=3": "selects nothing", "time=3:3": "ends before it begins", "time=9:3": "ends before it begins",
		"time=-3:": "selects nothing", "time=a:b": "selects nothing", "time=3,-1": "selects nothing", "time=" + longList(maxPlaces+1, ""): "at most 4096",
	} {
		_, err := ParseSelection(text)
		require.ErrorContains(t, err, want, "%.20q", text)
	}
}

func TestSelectionsMayBeCombined(t *testing.T) {
	for text, want := range map[string][]Selection{
		"t=1:2":              {{Dim: "t", Begin: 1, End: 2}},
		"t=1:2,y=:16,x=3":    {{Dim: "t", Begin: 1, End: 2}, {Dim: "y", End: 16}, {Dim: "x", End: -1, Places: []int64{3}}},
		"c=3,5,7,t=1:,d=2,1": {{Dim: "c", End: -1, Places: []int64{3, 5, 7}}, {Dim: "t", Begin: 1, End: -1}, {Dim: "d", End: -1, Places: []int64{2, 1}}},
		"a,b=1:2":            {{Dim: "a,b", Begin: 1, End: 2}},
	} {
		list, err := ParseSelections(text)
		require.NoError(t, err, text)
		require.Equal(t, want, list, text)
	}
	for _, text := range []string{"", ",", "=", "t=1:2,", "t=1:2,,y=1", "t=1:2,y", "t=1:2,y=", "t=1:2=3", "t=1:2;y=3:4"} {
		_, err := ParseSelections(text)
		require.ErrorContains(t, err, "selects nothing", "%q", text)
	}
}

func TestArraysAreNamedAfterTheirPathsByDefault(t *testing.T) {
	list, err := ParseFields("t=a/2m,b/wind/,c")
	require.NoError(t, err)
	var names []string
	for _, x := range list {
		names = append(names, NameOf(x))
	}
	require.Equal(t, []string{"t", "wind", "c"}, names)
	for _, text := range []string{"", "a,,b", "=a", "a="} {
		_, err := ParseFields(text)
		require.ErrorContains(t, err, "is not an array", "%q", text)
	}
}

func TestNumbersApplyToAllArraysOrByName(t *testing.T) {
	list, err := ParseFieldNumbers("t=0.01,wind=-2")
	require.NoError(t, err)
	require.Equal(t, []FieldNumber{{"t", 0.01}, {"wind", -2}}, list)
	require.Equal(t, -2.0, *NumberOf(list, "wind"))
	require.Nil(t, NumberOf(list, "x"))
	list, err = ParseFieldNumbers("1e-3")
	require.NoError(t, err)
	require.Equal(t, 1e-3, *NumberOf(list, "x"))
	for text, says := range map[string]string{"": "is not a number", "a=": "is not a number", "=1": "is not a number", "1,2": "more than one", "a=1,2": "more than one", "1,a=2": "more than one", "a=1,a=2": "names a twice"} {
		_, err := ParseFieldNumbers(text)
		require.ErrorContains(t, err, says, "%q", text)
	}
	s := Default()
	s.Dataset = "/data"
	s.Format = Format{Name: "zarr", Zarr: Zarr{
		Crop: []DimValue{{"t", 3}}, Fields: []Array{{"", "a/x"}}, As: AsTensorsU1, Scale: []FieldNumber{{"x", 0}, {"y", 1}}, Offset: []FieldNumber{{"", math.Inf(1)}},
	}}
	err = s.Validate()
	for _, want := range []string{"--as tensors:u1 needs --format lc0", "--scale (0) must not be 0", "--scale names y: --array does not name that array", "--offset (+Inf) must be a number"} {
		require.ErrorContains(t, err, want)
	}
	s.Format = Format{Name: "auto", Remainder: RemainderCorrupt, As: AsFloat32}
	require.ErrorContains(t, s.Validate(), `--as float32 needs --format zarr, not "auto"`)
}

func TestAllRequirementsOfCropsAreReportedAtOnce(t *testing.T) {
	s := Default()
	s.Dataset, s.Format = "/data", Format{Name: "zarr", Zarr: Zarr{
		Fields: []Array{{"", "a/x"}, {"", "b/x"}}, Select: []Selection{{Dim: "t"}, {Dim: "t"}}, Missing: "never", Jitter: true, List: "a.npy",
	}}
	err := s.Validate()
	for _, want := range []string{"two arrays are named x", "--select names t twice", "--missing", "--jitter with --crops needs --stride"} {
		require.ErrorContains(t, err, want)
	}
	s.Format = Format{Name: "tar", Zarr: Zarr{Stack: true}}
	require.ErrorContains(t, s.Validate(), "need --format zarr")
	s.Format = Format{Name: "zarr", Remainder: RemainderCorrupt, Zarr: Zarr{Crop: []DimValue{{"t", 3}}}}
	require.NoError(t, s.Validate())
	s.Grow.On = true
	require.ErrorContains(t, s.Validate(), "--grow can't be combined with --format zarr")
}
