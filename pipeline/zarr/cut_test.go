package zarr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func arrayOf(shape, chunk []int64, dims ...string) *Array {
	d := Dtype{Descr: "'<i2'", ItemBytes: 2, Units: []Unit{{Bytes: 2, Count: 1}}}
	return &Array{Shape: shape, Chunk: chunk, Object: chunk, Dims: dims, Type: d, Fill: []byte{7, 0}}
}

func cutOf(t *testing.T, z spec.Zarr, fields ...CutField) *Cut {
	c, err := NewCut(z, nil, fields)
	require.NoError(t, err)
	return c
}

var twoDims = spec.Zarr{Crop: []spec.DimValue{{Dim: "y", Value: 4}, {Dim: "x", Value: 5}}, Stride: []spec.DimValue{{Dim: "y", Value: 2}, {Dim: "x", Value: 3}}}

// The text is what other readers of kinds expect: members sorted by name, none left out.
func TestCutKindIsItsCanonicalText(t *testing.T) {
	c := cutOf(t, twoDims, CutField{Name: "sat", Path: "data/sat", Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")})
	require.Equal(t, `{"a":[0,0],"arrays":[["sat","data/sat","'<i2'",[4,5],[1,1],[null,null],"0700"]],"b":[10,20],"brick":[4,8],"dims":["y","x"],`+
		`"edge":"drop","jitter":false,"kept":"","list":"","missing":"fill","s":[2,3],"stack":false,"wrap":[false,false]}`, c.Kind())
	kind, n, ok := CutHeader(append(c.Header(), "crops\n"...))
	require.True(t, ok)
	require.Equal(t, c.Kind(), kind)
	require.Equal(t, len(c.Header()), n)
	require.Zero(t, n%64)
	require.EqualValues(t, 4*6, c.Total())
	for _, bad := range []string{"", "{}", "{}\n", c.Kind() + "\n", strings.Repeat(" ", 63) + "\n" + c.Kind()} {
		kind, _, ok := CutHeader([]byte(bad))
		require.False(t, ok && kind == c.Kind(), "%.40q", bad)
	}
}

func TestGridKindsMayDifferInTheirEnds(t *testing.T) {
	of := func(n int64, z spec.Zarr) string {
		return cutOf(t, z, CutField{Array: arrayOf([]int64{n, 20}, []int64{4, 8}, "y", "x")}).Kind()
	}
	jitter := twoDims
	jitter.Jitter = true
	a, b := of(10, twoDims), of(17, twoDims)
	require.True(t, SameKind(a, b))
	require.False(t, SameKind(a, of(10, jitter)))
	require.False(t, SameKind(a, "{}"))
	mixed := MixedKind([]string{a, b, a})
	require.Equal(t, strings.Replace(a, `"b":[10,20]`, `"b":[-1,20]`, 1), mixed)
	require.Equal(t, mixed, MixedKind([]string{mixed, a}))
	require.Equal(t, a, MixedKind([]string{a}))
	require.True(t, SameKind(mixed, a))
	fields, stack, err := FieldsOf(mixed)
	require.NoError(t, err)
	require.False(t, stack)
	require.Equal(t, []KindField{{"", "'<i2'", []int64{4, 5}}}, fields)
}

// One of several cubes may be too short for a crop, or end before the region begins.
func TestShortRegionHasNoCropsAndReportsWhy(t *testing.T) {
	z := twoDims
	z.Select = []spec.Selection{{Dim: "y", Begin: 8, End: -1}}
	for n, want := range map[int64]string{
		11: "a crop of y takes 4 elements, and 8:11 has 3: ask for shorter crops",
		5:  "the region of y begins at 8, and there are 5 elements",
		8:  "the region of y begins at 8, and there are 8 elements",
	} {
		c := cutOf(t, z, CutField{Path: "sat", Array: arrayOf([]int64{n, 20}, []int64{4, 8}, "y", "x")})
		require.Zero(t, c.Total())
		require.ErrorContains(t, c.Short(), "array sat: "+want)
	}
	c := cutOf(t, z, CutField{Array: arrayOf([]int64{12, 20}, []int64{4, 8}, "y", "x")})
	require.NoError(t, c.Short())
	require.EqualValues(t, 6, c.Total())
	own := CutField{Name: "b", Path: "b", Array: arrayOf([]int64{2, 12, 20}, []int64{1, 4, 8}, "level", "y", "x")}
	z.Crop = append(z.Crop[:2:2], spec.DimValue{Dim: "level", Value: 3})
	_, err := NewCut(z, nil, []CutField{{Name: "a", Array: arrayOf([]int64{12, 20}, []int64{4, 8}, "y", "x")}, own})
	require.ErrorContains(t, err, "a crop of level takes 3 elements, and 0:2 has 2", "which no origin changes")
}

// Origins are those of the first array, so there are no strides along a dimension that it lacks.
func TestDimensionMissingFromFirstArrayIsTakenWhole(t *testing.T) {
	first := CutField{Name: "a", Path: "a", Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")}
	levels := CutField{Name: "b", Path: "b", Array: arrayOf([]int64{5, 10, 20}, []int64{1, 4, 8}, "level", "y", "x")}
	again := levels
	again.Name = "c"
	level := func(n int64) []spec.DimValue { return []spec.DimValue{{Dim: "level", Value: n}} }
	for flags, z := range map[string]spec.Zarr{
		"--crop":                   {Crop: level(2)},
		"--stride":                 {Stride: level(2)},
		"--wrap":                   {Wrap: []string{"level"}},
		"--crop, --stride, --wrap": {Crop: level(2), Stride: level(1), Wrap: []string{"level"}},
	} {
		_, err := NewCut(z, nil, []CutField{first, levels, again})
		require.ErrorContains(t, err, flags+" level: array b has this dimension, and the first array, a (y=10, x=20), does not: ")
		require.ErrorContains(t, err, "as in --select level=0:")
		require.ErrorContains(t, err, "name b first in --array")
		require.Equal(t, 1, strings.Count(err.Error(), "does not: "), "it is said once")
	}
	for n, z := range map[int64]spec.Zarr{
		5: {Crop: level(5)},
		3: {Step: level(2)},
		2: {Select: []spec.Selection{{Dim: "level", Begin: 1, End: 3}}},
		1: {Select: []spec.Selection{{Dim: "level", Begin: 1, End: 3}}, Crop: level(1), Step: level(2)},
	} {
		require.Equal(t, []int64{n, 10, 20}, cutOf(t, z, first, levels).NewCrop(1).Count)
	}
	list := &List{Fields: [][]int64{{0, 0}, {3, 0, 0}}, Dims: []int{2, 3}, Numbers: []int64{0}}
	_, err := NewCut(spec.Zarr{Crop: append(level(2), twoDims.Crop...), List: "x"}, list, []CutField{first, levels})
	require.NoError(t, err, "a list says where in each array a crop lies")
}

func TestDimensionsWithoutNamesHaveNumbers(t *testing.T) {
	bare := CutField{Path: "0", Array: arrayOf([]int64{3, 10, 20}, []int64{1, 4, 8})}
	numbers := func(list ...int64) (crop []spec.DimValue) {
		for _, n := range list {
			crop = append(crop, spec.DimValue{Value: n})
		}
		return crop
	}
	c := cutOf(t, spec.Zarr{Crop: numbers(1, 4, 5), Select: []spec.Selection{{Dim: "0", Begin: 1, End: 3}}, Wrap: []string{"2"}}, bare)
	require.Equal(t, []int64{2, 2, 4}, c.Counts())
	_, err := NewCut(spec.Zarr{Crop: numbers(1, 4, 5), Select: []spec.Selection{{Dim: "3", End: -1}}, Wrap: []string{"x"}}, nil, []CutField{bare})
	require.ErrorContains(t, err, "--select 3: the dimensions of array 0 have no names (3, 10, 20): give the dimension's number, from 0 to 2")
	require.ErrorContains(t, err, "--wrap x: the dimensions of array 0 have no names")
	named := CutField{Path: "0", Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")}
	_, err = NewCut(spec.Zarr{Crop: twoDims.Crop, Wrap: []string{"1"}}, nil, []CutField{named})
	require.ErrorContains(t, err, "--wrap 1: no dimension has this name")
}

// Crops of two regions of a dimension that the first array lacks are different crops.
func TestKindDistinguishesRegionsMissingFromFirstArray(t *testing.T) {
	first := CutField{Name: "a", Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")}
	levels := CutField{Name: "b", Array: arrayOf([]int64{5, 10, 20}, []int64{1, 4, 8}, "level", "y", "x")}
	of := func(begin, end int64) string {
		z := twoDims
		z.Select = []spec.Selection{{Dim: "level", Begin: begin, End: end}}
		return cutOf(t, z, first, levels).Kind()
	}
	require.NotEqual(t, of(0, 2), of(1, 3))
	require.Contains(t, of(1, 3), `[2,4,5],[1,1,1],[[1,2],null,null]`)
	require.Contains(t, of(0, 2), `[2,4,5],[1,1,1],[null,null,null]`)
}

func FuzzKinds(f *testing.F) {
	f.Add(`{"a":[0],"arrays":[["","","'<i2'",[4],[1],[null],"0700"]],"b":[10],"brick":[4],"dims":["y"],"edge":"drop","jitter":false,"kept":"","list":"","missing":"fill","s":[2],"stack":false,"wrap":[false]}`)
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		fields, _, err := FieldsOf(text)
		if err == nil {
			require.NotEmpty(t, fields)
			require.True(t, SameKind(text, text))
			require.Equal(t, text, MixedKind([]string{text, text}))
		}
	})
}

func TestFieldsShareTheirCommonDimensions(t *testing.T) {
	first := CutField{Name: "a", Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")}
	across := CutField{Name: "b", Array: arrayOf([]int64{20, 3, 10}, []int64{8, 3, 5}, "x", "level", "y")}
	line := CutField{Name: "c", Array: arrayOf([]int64{20}, []int64{20}, "x")}
	z := twoDims
	z.Wrap = []string{"x"}
	c := cutOf(t, z, first, across, line)
	require.Equal(t, []int64{0, 64, 192}, c.Row().Offsets)
	s, crop := c.NewSpot(), []*Crop{c.NewCrop(0), c.NewCrop(1), c.NewCrop(2)}
	require.Equal(t, []int64{5, 3, 4}, crop[1].Count)
	require.Equal(t, []bool{true, false, false}, crop[1].Wrap)
	for n := range c.Total() {
		c.Locate(s, n, nil)
		for k := range crop {
			c.Place(k, crop[k], s)
		}
		y, x := s.Origin[0], s.Origin[1]
		require.Equal(t, []int64{y, x}, crop[0].Origin)
		require.Equal(t, []int64{x, 0, y}, crop[1].Origin)
		require.Equal(t, []int64{x}, crop[2].Origin)
	}
	j := NewJitter(1, 2, "c")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Locate(s, 3, &j)
		c.Place(1, crop[1], s)
	}))
}

func TestImpossibleCutsAreExplainedInTermsOfFlags(t *testing.T) {
	a := CutField{Path: "sat", Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")}
	for want, edit := range map[string]func(z *spec.Zarr, fields *[]CutField){
		"--crop z: no dimension has this name: there are y=10, x=20": func(z *spec.Zarr, _ *[]CutField) { z.Crop = []spec.DimValue{{Dim: "z", Value: 3}} },
		"--stride has 3 numbers, and array sat has 2 dimensions":     func(z *spec.Zarr, _ *[]CutField) { z.Stride = []spec.DimValue{{Value: 1}, {Value: 1}, {Value: 1}} },
		"leave x out of --crop": func(z *spec.Zarr, _ *[]CutField) {
			z.Select = []spec.Selection{{Dim: "x", End: -1, Places: []int64{1}}}
		},
		"there is no place 20": func(z *spec.Zarr, _ *[]CutField) {
			z.Select = []spec.Selection{{Dim: "x", End: -1, Places: []int64{20}}}
		},
		"have a dimension of the same name with different lengths": func(_ *spec.Zarr, f *[]CutField) {
			*f = append(*f, CutField{Path: "b", Array: arrayOf([]int64{11}, []int64{4}, "y")})
		},
		"only one of the arrays": func(_ *spec.Zarr, f *[]CutField) {
			*f = append(*f, CutField{Path: "b", Array: arrayOf([]int64{10}, []int64{4})})
		},
		"only equal ones can be stacked": func(z *spec.Zarr, f *[]CutField) {
			z.Stack = true
			*f = append(*f, CutField{Name: "b", Path: "b", Array: arrayOf([]int64{10}, []int64{4}, "y")})
		},
		"the dimensions of array sat have no names (10, 20): give numbers by": func(_ *spec.Zarr, f *[]CutField) {
			*f = []CutField{{Path: "sat", Array: arrayOf([]int64{10, 20}, []int64{4, 8})}}
		},
	} {
		z, fields := twoDims, []CutField{a}
		edit(&z, &fields)
		_, err := NewCut(z, nil, fields)
		require.ErrorContains(t, err, want)
	}
}

func TestListedOriginsAreGroupedByChunkAndKeepTheirRows(t *testing.T) {
	a := CutField{Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")}
	z := twoDims
	z.List = "crops.npy"
	l := &List{SHA256: "ab", Fields: [][]int64{{5, 9, 0, 0, 0, 15, 5, 9}}, Dims: []int{2}, Numbers: []int64{10, 11, 12, 13}}
	c, err := NewCut(z, l, []CutField{a})
	require.NoError(t, err)
	require.EqualValues(t, 4, c.Total())
	require.Contains(t, c.Kind(), `"list":"ab"`)
	s := c.NewSpot()
	var rows []int64
	for n := range c.Total() {
		c.Locate(s, n, nil)
		rows = append(rows, s.Row)
	}
	require.ElementsMatch(t, []int64{10, 11, 12, 13}, rows)
	require.Less(t, indexOf(rows, 10), indexOf(rows, 13), "equal ones by row")
	l.Fields[0][5] = 16
	_, err = NewCut(z, l, []CutField{a})
	require.ErrorContains(t, err, "--crops: row 12")
}

// An origin in the first array does not determine where to cut from an array on another grid.
func TestArraysOnDifferentGridsNeedOriginsInEach(t *testing.T) {
	a := CutField{Name: "a", Path: "a", Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")}
	b := CutField{Name: "b", Path: "b", Array: arrayOf([]int64{7, 20}, []int64{4, 8}, "y", "x")}
	z := twoDims
	z.List = "crops.npy"
	flat := func() *List { return &List{Fields: [][]int64{{6, 0}}, Dims: []int{2}, Numbers: []int64{0}} }
	apart := func(y int64) *List {
		return &List{Fields: [][]int64{{6, 0}, {y, 3}}, Dims: []int{2, 2}, Numbers: []int64{0}}
	}
	_, err := NewCut(z, flat(), []CutField{a, b})
	require.ErrorContains(t, err, "arrays a (y=10, x=20) and b (y=7, x=20) are on different grids")
	_, err = NewCut(z, apart(4), []CutField{a, b})
	require.ErrorContains(t, err, "--crops: row 0: b: y: a crop from 4 to 8")
	c, err := NewCut(z, apart(3), []CutField{a, b})
	require.NoError(t, err)
	s, crop := c.NewSpot(), c.NewCrop(1)
	c.Locate(s, 0, nil)
	c.Place(1, crop, s)
	require.Equal(t, []int64{3, 3}, crop.Origin)

	z.Jitter = true
	_, err = NewCut(z, apart(3), []CutField{a, b})
	require.ErrorContains(t, err, "leave out --jitter")
	z.Jitter = false

	z.Select = []spec.Selection{{Dim: "y", Begin: 0, End: 9}}
	_, err = NewCut(z, apart(3), []CutField{a, b})
	require.ErrorContains(t, err, "array b: y: the region 0:9 is not inside 0:7")
	z.Crop, z.Stride = z.Crop[1:], z.Stride[1:]
	z.Select = []spec.Selection{{Dim: "y", End: -1, Places: []int64{8}}}
	_, err = NewCut(z, apart(3), []CutField{a, b})
	require.ErrorContains(t, err, "there is no place 8: array b has places from 0 to 6")
}

func indexOf(list []int64, n int64) int {
	for i, x := range list {
		if x == n {
			return i
		}
	}
	return -1
}

// chunksOf returns the chunks in which a crop has elements.
func chunksOf(a *Array, c *Crop) map[string]bool {
	set := map[string]bool{}
	_ = c.Parts(a.Shape, a.Chunk, func(p *Part) error {
		set[fmt.Sprint(p.Chunk)] = true
		return nil
	})
	return set
}

// What a record may need in any epoch is what all crops need that jitter can make of it.
func TestReachOfRecordCoversAllPossibleJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := func(name string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, name) }
		shape, chunk := []int64{of("y", 6, 20), of("x", 6, 20)}, []int64{of("chunk y", 1, 5), of("chunk x", 1, 5)}
		z := spec.Zarr{Jitter: rapid.Bool().Draw(t, "jitter")}
		for d, name := range []string{"y", "x"} {
			step := of("step", 1, 4)
			z.Crop = append(z.Crop, spec.DimValue{Dim: name, Value: of("crop", 1, (shape[d]-1)/step+1)})
			z.Step = append(z.Step, spec.DimValue{Dim: name, Value: step})
			z.Stride = append(z.Stride, spec.DimValue{Dim: name, Value: of("stride", 1, 6)})
			if rapid.Bool().Draw(t, "wrap") {
				z.Wrap = append(z.Wrap, name)
			}
		}
		a := arrayOf(shape, chunk, "y", "x")
		c, err := NewCut(z, nil, []CutField{{Array: a}})
		require.NoError(t, err)
		spot, crop, reach := c.NewSpot(), c.NewCrop(0), c.NewReach(0)
		for n := range c.Total() {
			c.Locate(spot, n, nil)
			c.Reach(0, reach, spot)
			origin, want := []int64{spot.Origin[0], spot.Origin[1]}, map[string]bool{}
			rooms := []int64{1, 1}
			if z.Jitter {
				rooms = []int64{c.axes[0].room(origin[0]), c.axes[1].room(origin[1])}
			}
			for y := range rooms[0] {
				for x := range rooms[1] {
					spot.Origin[0], spot.Origin[1] = origin[0]+y, origin[1]+x
					c.Place(0, crop, spot)
					for b := range chunksOf(a, crop) {
						want[b] = true
					}
				}
			}
			require.Equal(t, want, chunksOf(a, reach), "record %d", n)
		}
	})
}

const sumOfThree = "3fe672f6de09ec588aa0fed4a6bb72bcc03a956e951d56e789a95956fc16888d"

func TestKindIncludesOmittedRecords(t *testing.T) {
	c := cutOf(t, twoDims, CutField{Array: arrayOf([]int64{10, 20}, []int64{4, 8}, "y", "x")})
	require.EqualValues(t, 24, c.Total())
	require.Nil(t, c.Kept())
	less, err := c.Keep([]uint64{0xffffff &^ 0x102})
	require.NoError(t, err)
	require.Equal(t, []uint64{0xfffefd}, less.Kept())
	// printf '\xfd\xfe\xff' | sha256sum
	require.Equal(t, strings.Replace(c.Kind(), `"kept":""`, `"kept":"`+sumOfThree+`"`, 1), less.Kind())
	require.True(t, SameKind(c.Kind(), less.Kind()))
	mixed := MixedKind([]string{c.Kind(), less.Kind()})
	require.NotEqual(t, mixed, MixedKind([]string{less.Kind(), c.Kind()}))
	require.NotEqual(t, mixed, MixedKind([]string{less.Kind(), less.Kind()}))
	require.Equal(t, c.Kind(), MixedKind([]string{c.Kind(), c.Kind()}))
	all, err := less.Keep(nil)
	require.NoError(t, err)
	require.Equal(t, c.Kind(), all.Kind())
}
