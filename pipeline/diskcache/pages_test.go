package diskcache

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRangesAreExtendedToPages(t *testing.T) {
	for _, c := range []struct {
		off, n int64
		want   run
	}{{0, 1, run{0, 1}}, {0, 4096, run{0, 1}}, {1, 4096, run{0, 2}}, {4095, 2, run{0, 2}}, {4096, 4096, run{1, 2}}, {5000, 5000, run{1, 3}}} {
		require.Equal(t, c.want, runOf(c.off, c.n), c)
	}
}

// missing is compared with a list of pages.
func TestMissingPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		here := rapid.SliceOfN(rapid.Bool(), 0, 40).Draw(t, "here")
		first := rapid.Int64Range(0, 1000).Draw(t, "first")
		gap := rapid.Int64Range(0, 4).Draw(t, "gap")
		sums := make([]byte, len(here)*sumBytes)
		for i, is := range here {
			if is {
				sums[i*sumBytes+i%sumBytes] = 1
			}
		}
		var got []int64
		last := int64(-1000)
		for _, r := range missing(sums, first, gap) {
			require.Less(t, r.begin, r.end)
			require.Greater(t, r.begin-last, gap, "what is near is one run")
			require.False(t, here[r.begin-first], "a run begins with what is missing")
			require.False(t, here[r.end-1-first], "and ends with it")
			for page := r.begin; page < r.end; page++ {
				got = append(got, page)
			}
			last = r.end
		}
		for i, is := range here {
			if !is {
				require.True(t, slices.Contains(got, first+int64(i)))
			} else if gap == 0 {
				require.False(t, slices.Contains(got, first+int64(i)))
			}
		}
	})
}

func TestPageSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s pageSet
		model := map[int64]bool{}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			page := rapid.Int64Range(0, 300).Draw(t, "page")
			if rapid.Bool().Draw(t, "add") {
				require.Equal(t, !model[page], s.add(page))
				model[page] = true
			} else {
				require.Equal(t, model[page], s.remove(page))
				delete(model, page)
			}
			require.Equal(t, model[page], s.has(page))
			require.EqualValues(t, len(model), s.n)
		}
	})
}
