package top

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetricsOfSeveralMountsAreMergedWithMountAsLabel(t *testing.T) {
	a := `# HELP lsiofs_a What a is.
# TYPE lsiofs_a counter
lsiofs_a 1
# HELP lsiofs_b What b is.
# TYPE lsiofs_b gauge
lsiofs_b{stage="x y"} 2
lsiofs_b{stage="z"} 3
`
	c := `# HELP lsiofs_b What b is.
# TYPE lsiofs_b gauge
lsiofs_b{stage="z"} 4
# HELP lsiofs_c What c is.
# TYPE lsiofs_c gauge
lsiofs_c 5
`
	require.Equal(t, `# HELP lsiofs_a What a is.
# TYPE lsiofs_a counter
lsiofs_a{mount="/mnt/a"} 1
# HELP lsiofs_b What b is.
# TYPE lsiofs_b gauge
lsiofs_b{mount="/mnt/a",stage="x y"} 2
lsiofs_b{mount="/mnt/a",stage="z"} 3
lsiofs_b{mount="/mnt/\"c\\",stage="z"} 4
# HELP lsiofs_c What c is.
# TYPE lsiofs_c gauge
lsiofs_c{mount="/mnt/\"c\\"} 5
# HELP lsiofs_up Whether the mount answered, 1 or 0.
# TYPE lsiofs_up gauge
lsiofs_up{mount="/mnt/a"} 1
lsiofs_up{mount="/mnt/\"c\\"} 1
lsiofs_up{mount="/mnt/gone"} 0
`, string(merged([]scraped{{"/mnt/a", a}, {`/mnt/"c\`, c}, {"/mnt/gone", ""}})))
}

// FuzzMerged checks that each line of values in the result has the label of its mount, whatever
// mounts return.
func FuzzMerged(f *testing.F) {
	f.Add("# HELP a b\n# TYPE a gauge\na 1\na{x=\"y\"} 2\n", "a 1")
	f.Add("# HELP\n# \n\n{\n a\n", "# TYPE x y z")
	f.Fuzz(func(t *testing.T, a, b string) {
		for line := range strings.Lines(string(merged([]scraped{{"/a", a}, {"/b", b}}))) {
			if !strings.HasPrefix(line, "# ") {
				require.Contains(t, line, `{mount="/`)
			}
		}
	})
}
