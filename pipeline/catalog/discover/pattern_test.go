package discover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestPatternSkipsDirectoriesThatCannotMatch(t *testing.T) {
	tests := []struct {
		pattern string
		in, out []string
	}{
		{"*.tar", nil, []string{"a", "a/b"}},
		{"a*/x/*.tar", []string{"a1", "a1/x"}, []string{"b", "a1/y", "a1/x/z"}},
		{"s-{00..12}/**/*.tar", []string{"s-03", "s-03/a", "s-03/a/b"}, []string{"s-3", "t"}},
		{"**", []string{"a", "a/b"}, nil},
		{"a/**", []string{"a", "a/b/c"}, []string{"b"}},
		{"{a,b}/{1..10}/x", []string{"a", "b", "b/10"}, []string{"c", "a/x", "a/123"}},
		{"{a/b,c}/*.tar", []string{"a", "a/b", "c"}, []string{"anything", "b"}},
		{"{a/x.tar,b/*/y.tar}", []string{"a", "b", "b/c"}, []string{"c", "a/b"}},
	}
	for _, tt := range tests {
		p, err := parsePattern(tt.pattern)
		require.NoError(t, err)
		for _, dir := range tt.in {
			require.True(t, p.match(dir, true), "%s enters %s", tt.pattern, dir)
		}
		for _, dir := range tt.out {
			require.False(t, p.match(dir, true), "%s enters %s", tt.pattern, dir)
		}
	}
}

// nothing is a whyLeftOut for which nothing is left out.
func nothing(string) (reason string, excluded bool) { return "", false }

func TestRangeWithWildcardNeedsAFileForEachNumber(t *testing.T) {
	p, err := parsePattern("p{08..11}-*.tar")
	require.NoError(t, err)
	list := func(names ...string) (objects []storage.Object) {
		for _, n := range names {
			objects = append(objects, storage.Object{Path: n})
		}
		return objects
	}
	got, _, err := p.choose(list("p08-a.tar", "p09-a.tar", "p09-b.tar", "p10-c.tar", "p11-d.tar", "p12-no.tar"), nothing, true)
	require.NoError(t, err)
	require.Equal(t, list("p08-a.tar", "p09-a.tar", "p09-b.tar", "p10-c.tar", "p11-d.tar"), got)
	_, _, err = p.choose(list("p08-a.tar", "p09-a.tar", "p11-d.tar"), nothing, true)
	require.ErrorContains(t, err, "p10-*.tar is missing")
}

func TestRangesExpandLikePlainLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Uint64Range(0, 120).Draw(t, "low")
		high := low + rapid.Uint64Range(0, 50).Draw(t, "more")
		width := rapid.IntRange(1, 5).Draw(t, "width")
		text := fmt.Sprintf("{%0*d..%d}", width, low, high)
		padded := strings.HasPrefix(text, "{0") && !strings.HasPrefix(text, "{0.")
		p, err := parsePattern("s-" + text + rapid.SampledFrom([]string{".tar", "*.tar"}).Draw(t, "rest"))
		require.NoError(t, err)
		var objects, want []storage.Object
		for i := range uint64(200) {
			name := fmt.Sprintf("s-%d.tar", i)
			if padded {
				name = fmt.Sprintf("s-%0*d.tar", max(width, len(fmt.Sprint(high))), i)
			}
			objects = append(objects, storage.Object{Path: name})
			if i >= low && i <= high {
				want = append(want, objects[i])
			}
		}
		for _, o := range want {
			require.True(t, p.match(o.Path, false), o.Path)
		}
		got, _, err := p.choose(slices.DeleteFunc(slices.Clone(objects), func(o storage.Object) bool { return !p.match(o.Path, false) }), nothing, true)
		require.NoError(t, err)
		for _, o := range want {
			require.Contains(t, got, o)
		}
		if p.alternatives[0].plain() {
			require.Equal(t, want, got)
		}
	})
}
