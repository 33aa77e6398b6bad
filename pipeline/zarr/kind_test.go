package zarr

import (
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
