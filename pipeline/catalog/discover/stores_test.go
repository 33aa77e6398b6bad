package discover

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A pattern names a path individually if the path has no wildcards.
func TestPatternNamesPathsOneByOne(t *testing.T) {
	for text, want := range map[string][]string{
		"{2018,2019}.zarr":          {"2018.zarr", "2019.zarr"},
		"{2018..2020}.zarr":         {"2018.zarr", "2019.zarr", "2020.zarr"},
		"s-{08..10}/{a,b/c}":        {"s-08/a", "s-08/b/c", "s-09/a", "s-09/b/c", "s-10/a", "s-10/b/c"},
		"{a,{b,c}-{1..2}}.zarr":     {"a.zarr", "b-1.zarr", "b-2.zarr", "c-1.zarr", "c-2.zarr"},
		"{a,*}.zarr":                {"a.zarr"},
		"*.zarr":                    nil,
		"201?.zarr":                 nil,
		"x-{0..999999}-{0..9}.zarr": nil, // too many: each number is required in any case
		"{a,b":                      nil,
	} {
		tt := Target{}
		p, err := parsePattern(text)
		if err == nil {
			tt.pattern = p
		} else {
			tt.pattern = &pattern{text: text}
		}
		require.ElementsMatch(t, want, tt.Named(), text)
	}
	require.Nil(t, (&Target{file: "x{1,2}"}).Named())
	require.Nil(t, (&Target{}).Named())
}
