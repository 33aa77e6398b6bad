package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesAreMergedByMetric(t *testing.T) {
	got := Merge(map[string]string{
		"b": "# HELP x_total X.\n# TYPE x_total counter\nx_total 2\n# HELP only O.\n# TYPE only gauge\nonly{} 1\n",
		"a": "# HELP x_total X.\n# TYPE x_total counter\nx_total 1\n" +
			"# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 3\nh_sum 4\nh_count 3\n" +
			"# HELP y Y, \"quoted\" \\n.\n# TYPE y gauge\ny{name=\"} a b\",z=\"\"} 1e+09\n# a comment\n\n nonsense\n",
		"gone": "",
		"\"\\": "x_total 3",
	})
	require.Equal(t, `# HELP h H.
# TYPE h histogram
h_bucket{server="a",le="+Inf"} 3
h_sum{server="a"} 4
h_count{server="a"} 3
# HELP only O.
# TYPE only gauge
only{server="b"} 1
# HELP x_total X.
# TYPE x_total counter
x_total{server="\"\\"} 3
x_total{server="a"} 1
x_total{server="b"} 2
# HELP y Y, "quoted" \n.
# TYPE y gauge
y{server="a",name="} a b",z=""} 1e+09
`, got)
}
