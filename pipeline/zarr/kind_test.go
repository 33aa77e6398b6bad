package zarr

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// The JSON of a kind is what other languages write, such as Python's json.dumps with
// ensure_ascii=False.
func TestKindTextEscapesNoMoreThanJSONDoes(t *testing.T) {
	for text, want := range map[string]string{
		"a\u2028b\u2029": "\"a\u2028b\u2029\"",
		`\u2028`:         `"\\u2028"`,
		"\\\u2028":       "\"\\\\\u2028\"",
		"<&>é\x7f":       "\"<&>é\x7f\"",
		"\x01\n\"":       `"\u0001\n\""`,
	} {
		b, err := plainJSON(text)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	z := spec.Zarr{Crop: []spec.DimValue{{Dim: "y\u2028", Value: 4}, {Dim: "x", Value: 5}}}
	c := cutOf(t, z, CutField{Name: "\u2029", Path: "a\u2028", Array: arrayOf([]int64{12, 20}, []int64{4, 8}, "y\u2028", "x")})
	require.Contains(t, c.Kind(), "\"dims\":[\"y\u2028\",\"x\"]")
	require.Contains(t, c.Kind(), "[\"\u2029\",\"a\u2028\",")
	require.True(t, SameKind(c.Kind(), c.Kind()), "it is read again")
}

func TestDifferencesNameFlags(t *testing.T) {
	of := func(change func(z *spec.Zarr)) string {
		z := twoDims
		change(&z)
		return cutOf(t, z, CutField{Name: "data", Path: "data", Array: arrayOf([]int64{30, 40}, []int64{4, 8}, "y", "x")}).Kind()
	}
	was := of(func(*spec.Zarr) {})
	require.Empty(t, Differences(was, was))
	require.Empty(t, Differences(was, "{}"))
	for want, change := range map[string]func(z *spec.Zarr){
		"--crop of data is 4,6, and was 4,5": func(z *spec.Zarr) { z.Crop = []spec.DimValue{{Dim: "y", Value: 4}, {Dim: "x", Value: 6}} },
		"--jitter is true, and was false":    func(z *spec.Zarr) { z.Jitter = true },
		"--edge is cover, and was drop":      func(z *spec.Zarr) { z.Cover = true },
		"the region (--select, or the array) ends at is 20,40, and was 30,40": func(z *spec.Zarr) {
			z.Select = []spec.Selection{{Dim: "y", Begin: 0, End: 20}}
		},
	} {
		require.Contains(t, strings.Split(Differences(of(change), was), "; "), want)
	}
}

// A member that is added to kinds later has to be reported, too.
func TestEachDifferingMemberOfKindIsReported(t *testing.T) {
	was := cutOf(t, twoDims, CutField{Name: "data", Path: "data", Array: arrayOf([]int64{30, 40}, []int64{4, 8}, "y", "x")}).Kind()
	for i := range reflect.TypeFor[kindText]().NumField() {
		k, err := parseKind(was)
		require.NoError(t, err)
		f := reflect.ValueOf(&k).Elem().Field(i)
		switch x := f.Addr().Interface().(type) {
		case *[]int64:
			(*x)[0]++
		case *[]string:
			(*x)[0] += "other"
		case *[]bool:
			(*x)[0] = !(*x)[0]
		case *bool:
			*x = !*x
		case *string:
			*x += "other"
		case *[]kindArray:
			(*x)[0].step[0]++
		case **kindAs:
			*x = &kindAs{mixed: "00"}
		default:
			t.Fatalf("%T", x)
		}
		is, err := plainJSON(k)
		require.NoError(t, err)
		require.NotEmpty(t, Differences(string(is), was), reflect.TypeFor[kindText]().Field(i).Name)
	}
	for i := range reflect.TypeFor[kindArray]().NumField() {
		k, err := parseKind(was)
		require.NoError(t, err)
		a := &k.Arrays[0]
		[]func(){
			func() { a.name = "n" }, func() { a.path = "p" }, func() { a.descr = "'<i4'" }, func() { a.crop[0]++ }, func() { a.step[0]++ },
			func() { a.places[0] = []int64{1} }, func() { a.fill = "0101" },
		}[i]()
		is, err := plainJSON(k)
		require.NoError(t, err)
		require.NotEmpty(t, Differences(string(is), was), "%d", i)
	}
}
